"""The traincore tool as scripts see it: exit statuses, JSON, one sentence for bad use.  python3 cli_test.py TOOL"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

TOOL = sys.argv.pop(1)


def run(*arguments):
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=600)


class Tool(unittest.TestCase):
    def succeed(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def refuse(self, says, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertIn(says, result.stdout + result.stderr)

    def test_check_passes_in_every_mode(self):
        counts = json.loads(self.succeed("check", "rmsnorm", "--quick", "--all", "--json"))
        self.assertEqual(counts["failed"], 0)
        self.assertGreater(counts["total"], 1000)
        modes = {line["mode"] for line in counts["checks"]}
        self.assertEqual(
            modes, {"numbers", "grad", "determinism", "batch-invariance", "mutants", "refusals"})

    def test_env_computes(self):
        env = json.loads(self.succeed("env", "--json"))
        self.assertTrue(env["devices"][0]["works"])
        self.assertTrue(env["libraries"]["oneDNN"])
        self.assertIn("right", self.succeed("env"))

    def test_ops_is_the_schema(self):
        ops = json.loads(self.succeed("ops", "--json"))
        passes = {p["name"]: p for op in ops for p in op["passes"]}
        fields = {f["name"]: f for f in passes["rmsnorm_backward"]["fields"]}
        self.assertEqual(fields["dx"]["shape"], "rows... cols")
        self.assertTrue(fields["dweight"]["accumulates"])
        self.assertIn("may be x or residual", self.succeed("ops", "rmsnorm"))

    def test_explain(self):
        text = self.succeed("explain", "rmsnorm_forward", "--shape", "rows=4x512,cols=4096", "--set", "eps=1e-5",
                            "--dtype", "bf16,weight=f32", "--with", "weight", "--json")
        call = json.loads(text)[0]
        self.assertEqual(call["status"], "TC_OK")
        self.assertEqual(call["bytes"], 2 * 2048 * 4096 * 2 + 4096 * 4)
        self.assertIn("a row at a time", call["kernel"])
        self.assertIn("cpu", call["target"])
        attention = json.loads(self.succeed("explain", "attention_forward", "--shape",
                                            "batch=1,heads=4,kv_heads=2,seq_q=64,seq_k=64,head_dim=8,value_dim=8", "--json"))
        self.assertGreater(attention[0]["flops"], 0)

    def explain_gpu(self, *arguments):
        return json.loads(self.succeed("explain", *arguments, "--device", "cuda", "--json"))

    def test_explain_says_what_a_gpu_would_run(self):
        rows = ("rmsnorm", "--set", "eps=1e-5", "--with", "weight", "--dtype", "bf16")
        kernels = {(gpu, cols, call["pass"]): call["kernel"]
                   for gpu in ("h200", "a100", "rtx4090") for cols in (1024, 1001, 262144)
                   for call in self.explain_gpu(*rows, "--shape", f"rows=4096,cols={cols}", "--gpu", gpu)}
        for gpu in ("h200", "a100", "rtx4090"):
            self.assertIn("a warp a row, the row in registers", kernels[gpu, 1024, "rmsnorm_forward"])
            self.assertIn("slabs of rows", kernels[gpu, 1024, "rmsnorm_backward"])
            self.assertIn("element by element: the width", kernels[gpu, 1001, "rmsnorm_forward"])
        self.assertIn("a cluster of ", kernels["h200", 262144, "rmsnorm_forward"])
        self.assertIn("too wide for registers", kernels["a100", 262144, "rmsnorm_forward"])
        add = self.explain_gpu("add", "--shape", "dims=4096x4096", "--gpu", "a100")[0]
        self.assertIn("a thread for every 4 elements", add["kernel"])
        self.assertIn("NVIDIA A100, sm_80, 108 multiprocessors; described", add["target"])

    def test_explain_says_that_mixed_dtypes_take_a_generic_kernel(self):
        for op in ("rmsnorm", "layernorm"):
            for call in self.explain_gpu(op, "--set", "eps=1e-5", "--shape", "rows=8,cols=4096", "--dtype", "bf16,x=f32"):
                self.assertIn("dtypes differ, and each is looked at while it runs", call["kernel"])

    def test_explain_describes_a_gpu_where_none_is(self):
        target = self.explain_gpu("fill", "--shape", "dims=7")[0]["target"]
        if len(json.loads(self.succeed("env", "--json"))["devices"]) == 1:
            self.assertIn("NVIDIA H200, sm_90, 132 multiprocessors; described, since no GPU is here", target)
        else:
            self.assertNotIn("described", target)

    def test_explain_refuses_on_a_gpu_what_the_launch_would(self):
        gpu = ("--device", "cuda", "--gpu", "h200")
        self.refuse("no variant for bf16 offers TC_STRICT", "explain", "softmax_forward", "--shape", "rows=4,cols=64", "--dtype",
                    "bf16", "--precision", "strict", *gpu)
        self.refuse("there is no GPU kernel for it", "explain", "gemm_i8", "--shape", "m=4,n=4,k=4", *gpu)
        self.refuse("--device must be cuda", "explain", "fill", "--shape", "dims=7", "--gpu", "h200")
        self.refuse("choose from h200, a100, rtx4090", "explain", "fill", "--shape", "dims=7", "--device", "cuda", "--gpu", "v100")
        self.refuse("choose from cpu, cuda, cuda:1", "explain", "fill", "--shape", "dims=7", "--device", "rocm")

    def test_explain_asks_backward_for_every_gradient(self):
        shape = ("--shape", "rows=8,cols=16", "--dtype", "f32", "--json")
        both = json.loads(self.succeed("explain", "rmsnorm_backward", *shape, "--with", "weight"))
        one = json.loads(self.succeed("explain", "rmsnorm_backward", *shape, "--with", "weight,dx"))
        self.assertEqual(both[0]["bytes"] - one[0]["bytes"], 16 * 4)

    def test_explain_gives_backward_what_forward_must_have(self):
        passes = json.loads(self.succeed("explain", "gemm", "--shape", "m=128,n=96,k=64", "--json"))
        self.assertEqual([p["status"] for p in passes], ["TC_OK", "TC_OK"])
        self.assertEqual(passes[1]["flops"], 2 * passes[0]["flops"])  # da and db

    def test_explain_needs_no_memory(self):
        self.succeed("explain", "rmsnorm", "--shape", "rows=100000000,cols=4096", "--set", "eps=1e-5", "--with", "weight")

    def test_explain_refuses_as_the_call_would(self):
        self.refuse("eps is 0, but must be > 0", "explain", "rmsnorm_forward", "--shape", "rows=2,cols=3")
        self.refuse("before_weight rounds to f32", "explain", "rmsnorm_forward", "--shape", "rows=2,cols=3", "--set",
                    "eps=1,rounding=before_weight", "--with", "weight", "--dtype", "bf16", "weight=f32")
        self.refuse("does not give every dimension", "explain", "rmsnorm", "--shape", "rows=2")
        self.refuse("no dimension seq", "explain", "rmsnorm", "--shape", "rows=2,seq=2")
        self.refuse("passes 2^46", "explain", "rmsnorm_forward", "--shape", "rows=4000000000000000,cols=8192", "--set", "eps=1")
        for extent in ("-1", "2x", "x", "", "1e3", "99999999999999999999"):
            self.refuse("write extents", "explain", "rmsnorm", "--shape", f"cols=3,rows={extent}")

    def test_bench(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "bench.html")
            only = ("--only", "rows=131072", "--seconds", "0.1", "--dtype", "bf16", "--html", page, "--json")
            result = json.loads(self.succeed("bench", "rmsnorm", *only))
            self.assertEqual({m["pass"] for m in result["measurements"]}, {"rmsnorm_forward", "rmsnorm_backward"})
            for m in result["measurements"]:
                self.assertGreater(m["median_seconds"], 0)
                self.assertGreater(m["of_floor"], 0)
            with open(page) as file:
                html = file.read()
            self.assertIn("<svg", html)
            self.assertNotIn("http", html)
        self.refuse("cannot write --html", "bench", "rmsnorm", "--html", "/nowhere/bench.html")

    def test_training_occupies_what_it_says(self):
        for dtype, bytes_of_states in (("f32", 16), ("bf16", 18)):
            with self.subTest(dtype=dtype), tempfile.TemporaryDirectory() as folder:
                data = os.path.join(folder, "data.txt")
                with open(data, "w") as file:
                    file.write("All work and no play makes Jack a dull boy.\n" * 500)
                settings = {"train.dtype": dtype, "train.out": os.path.join(folder, "run"), "train.steps": 2, "optim.warmup": 0, "train.threads": 2,
                            "train.batch": 4, "train.micro_batch": 4, "model.context": 128, "model.dim": 512,
                            "model.ffn": 1408, "model.vocab": 20000, "sample.tokens": 4}
                words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
                with open(os.path.join(folder, "log"), "w+") as log:
                    process = subprocess.Popen([TOOL, "train", "--preset", "tiny", "--data", data, *words], stdout=log)
                    _, status, usage = os.wait4(process.pid, 0)
                    process.returncode = os.waitstatus_to_exitcode(status)
                    log.seek(0)
                    text = log.read()
                self.assertEqual(process.returncode, 0, text)
                said = float(re.search(r"memory  ([0-9.]+) GB at most", text)[1]) * 1e9
                self.assertIn(f"({bytes_of_states} bytes a parameter)", text)
                self.assertLessEqual(usage.ru_maxrss * 1024, said)
                self.assertGreater(usage.ru_maxrss * 1024, 0.85 * said)

    def test_what_checks_or_times_nothing_is_refused(self):
        for mode in ("--capture", "--large"):
            self.refuse("add --device cuda", "check", "rmsnorm", mode)
        self.refuse("no case contains no_such_case", "bench", "fill", "--only", "no_such_case")
        self.refuse("no case contains no_such_case", "check", "fill", "--quick", "--only", "no_such_case")
        self.refuse("not of other modes", "check", "fill", "--only", "rows=3", "--all")

    def test_output_that_cannot_be_written_is_no_success(self):
        for arguments in (("ops", "--json"), ("env",), ("check", "fill", "--quick")):
            with open("/dev/full", "w") as full:
                result = subprocess.run([TOOL, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn("No space left", result.stderr)

    def test_numbers_out_of_range(self):
        for value in ("0", "-1", "nan", "inf", "1e999", "many", ""):
            self.refuse("a number > 0 is wanted", "bench", "fill", "--seconds", value)
        for value in ("-1", "nan", "two"):
            self.refuse("a number >= 0 is wanted", "bench", "fill", "--threads", value)

    def test_integers_are_written_out(self):
        self.assertIn(str(-(2**63)), self.succeed("ops", "attention"))

    def test_verify_reports_any_bytes_as_json(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "config.json"), "wb") as file:
                file.write(b'{"model_type": "\xff"}')
            result = run("checkpoint", "verify", "--json", folder)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("not valid JSON", json.loads(result.stdout)["problems"][0])
        self.refuse("is not a folder", "checkpoint", "verify", "/nowhere")

    def test_bad_use_is_one_sentence(self):
        for command in ("check", "bench", "ops", "explain"):
            self.refuse("there is no op no_such_op; these are:", command, "no_such_op")
        for command in ("check", "bench"):
            self.refuse("choose from f32, bf16, f16", command, "rmsnorm", "--dtype", "f64")
        self.refuse("--no-such-option", "check", "rmsnorm", "--no-such-option")
        self.refuse("subcommand", "--json")
        self.refuse("no GPU kernels", "check", "--device", "cuda")


if __name__ == "__main__":
    unittest.main()
