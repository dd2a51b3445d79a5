"""AdamW as a torch optimizer: all tensors of a group in one call."""

import torch

from .. import ops
from .._pairs import real


class AdamW(torch.optim.Optimizer):
    """Decoupled AdamW: p -= lr (mhat / (sqrt(vhat) + eps) + weight_decay p), the decay on the old parameter.

    Parameters are f32 or bf16, gradients any float; moments are f32. The state has the names of torch.optim.AdamW
    (step, exp_avg, exp_avg_sq), so that state_dicts go both ways for f32 parameters. For bf16 parameters rounding is
    "nearest", which loses steps smaller than half a bf16 spacing, or "stochastic", keyed on (seed, step, index), so that
    a resumed run repeats exactly. maximize and amsgrad are not served.

    capturable keeps the step on the device, and lr may then be an f32 scalar tensor there, so that a CUDA graph of the
    step does not freeze them; all parameters of a group that have gradients then step together."""

    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, *, rounding: str = "nearest", seed: int = 0, capturable: bool = False):  # fmt: skip
        if rounding not in ("nearest", "stochastic"):
            raise ValueError(f"AdamW: rounding is {rounding!r}, expected 'nearest' or 'stochastic'")
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not isinstance(value, torch.Tensor):
                real(f"AdamW: {name}", value, low=0)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise TypeError(f"AdamW: betas is {betas!r}, expected two numbers")
        for name, beta in zip(("betas[0]", "betas[1]"), betas):
            if real(f"AdamW: {name}", beta, low=0, high=1) == 1:
                raise ValueError(f"AdamW: {name} is {beta!r}, but must be in [0, 1)")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "rounding": rounding,
            "seed": seed,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure=None):
        """One step of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        first_index = 0
        for group in self.param_groups:
            for where in self._calls(group):
                first_index = self._step(group, where, first_index)
        return loss

    def _calls(self, group: dict) -> list[list[torch.Tensor]]:
        """The group's parameters by device, dtype and step: each becomes one call."""
        calls: dict[tuple, list[torch.Tensor]] = {}
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.is_sparse:
                raise RuntimeError("AdamW: a gradient is sparse, but only dense gradients are served")
            state = self.state[p]
            if not state:
                state["step"] = self._as_step(torch.zeros(()), p, group)
                state["exp_avg"] = torch.zeros(p.shape, dtype=torch.float32, device=p.device)
                state["exp_avg_sq"] = torch.zeros(p.shape, dtype=torch.float32, device=p.device)
            state["step"] += 1
            step = None if group["capturable"] else int(state["step"])
            calls.setdefault((p.device, p.dtype, step), []).append(p)
        return list(calls.values())

    @staticmethod
    def _as_step(step: torch.Tensor, p: torch.Tensor, group: dict) -> torch.Tensor:
        """The step's own form: as torch.optim.AdamW has it on the host, or as the kernel reads it on the device."""
        return step.to(p.device, torch.int64) if group["capturable"] else step.to("cpu", torch.float32)

    @staticmethod
    def _schedule(group: dict, step: torch.Tensor) -> dict:
        """Step and rate as the call takes them."""
        if not group["capturable"]:
            return {"step": int(step), "lr": float(group["lr"])}
        rate = group["lr"]
        on_device = isinstance(rate, torch.Tensor)
        return {"step_tensor": step} | (
            {"lr_tensor": rate.to(step.device, torch.float32)} if on_device else {"lr": rate}
        )

    def _step(self, group: dict, params: list[torch.Tensor], first_index: int) -> int:
        """One call; returns the index of the first element of the next one."""
        stochastic = group["rounding"] == "stochastic" and params[0].dtype is torch.bfloat16
        state = [self.state[p] for p in params]
        dense = [p.data if p.is_contiguous() else p.data.contiguous() for p in params]
        ops.adamw(
            params=dense, grads=[p.grad.contiguous() for p in params], m=[s["exp_avg"] for s in state],
            v=[s["exp_avg_sq"] for s in state], beta1=group["betas"][0], beta2=group["betas"][1],
            eps=group["eps"], weight_decay=group["weight_decay"], seed=group["seed"],
            rounding="stochastic" if stochastic else "nearest", first_index=first_index if stochastic else 0,
            **self._schedule(group, state[0]["step"]),
        )  # fmt: skip
        for p, updated in zip(params, dense):
            if updated.data_ptr() != p.data_ptr():
                p.data.copy_(updated)
        return first_index + sum(p.numel() for p in params)

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # torch.optim.AdamW's groups have none of our own settings
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def load_state_dict(self, state_dict: dict) -> None:
        """Restores a state, torch.optim.AdamW's too; moments stay f32 even of bf16 parameters."""
        for name in ("amsgrad", "maximize"):
            if any(group.get(name) for group in state_dict["param_groups"]):
                raise ValueError(f"AdamW: the state was made with {name}=True, which is not served")
        super().load_state_dict(state_dict)
        saved = state_dict["state"]
        indices = (i for group in state_dict["param_groups"] for i in group["params"])
        for group in self.param_groups:
            for p, index in zip(group["params"], indices):
                if index not in saved:
                    continue
                state = self.state[p]
                state["step"] = self._as_step(state["step"], p, group).clone()
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = saved[index][name].to(device=p.device, dtype=torch.float32).clone()
