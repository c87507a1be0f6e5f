"""One rival's training steps, timed: TRL's SFTTrainer with PEFT alone, with Liger's kernels, or with Unsloth's.

`python rival_driver.py STACK MODEL_DIR --method qlora --workload NAME:BATCH:SEQ...` writes a line of JSON per workload.
Each rival is set up as its own documentation says. The rows are those of our own timing, in the same order.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
os.environ |= {"UNSLOTH_DISABLE_STATISTICS": "1", "WANDB_DISABLED": "true", "TOKENIZERS_PARALLELISM": "false"}
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "engine"))

STACKS = ("trl", "liger", "unsloth")
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LEARNING_RATE = 2e-4
GIB = 2**30

# Unsloth patches the others, so it must be imported before them.
if __name__ == "__main__" and sys.argv[1:2] == ["unsloth"]:
    import unsloth  # noqa: F401

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback  # noqa: E402
from trl import SFTConfig, SFTTrainer  # noqa: E402

from tunesmith_engine.bench.workload import Workload  # noqa: E402

ON_GPU = torch.cuda.is_available()


class Clock(TrainerCallback):
    """Notes when steps end; the GPU is waited for at the ends of the timed part only."""

    def __init__(self, workload: Workload) -> None:
        self._num_warmups = workload.num_warmup_steps
        self._num_steps = workload.num_warmup_steps + workload.num_steps
        self._ends: list[float] = []
        self.losses: list[float] = []

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """See TrainerCallback."""
        if ON_GPU and state.global_step in (self._num_warmups, self._num_steps):
            torch.cuda.synchronize()
        self._ends.append(time.perf_counter())

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """See TrainerCallback."""
        if logs and "loss" in logs:
            self.losses.append(float(logs["loss"]))

    @property
    def timed_s(self) -> list[float]:
        """Seconds of each step after the warm-up."""
        ends = self._ends[self._num_warmups - 1 :]
        return [end - start for start, end in itertools.pairwise(ends)]


class Rival:
    """A model loaded the rival's way."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.adapter: Any = None
        start_s = time.perf_counter()
        longest = max(workload.sequence_length for workload in arguments.workload)
        if arguments.stack == "unsloth":
            self._load_unsloth(longest, all(workload.checkpointing for workload in arguments.workload))
        else:
            self._load_plain()
        self.load_s = time.perf_counter() - start_s
        self.load_peak_bytes = torch.cuda.max_memory_allocated() if ON_GPU else 0

    def _load_unsloth(self, longest: int, checkpointing: bool) -> None:
        from unsloth import FastLanguageModel

        model, self.tokenizer = FastLanguageModel.from_pretrained(
            model_name=self.arguments.model,
            max_seq_length=longest,
            dtype=torch.bfloat16,
            load_in_4bit=self.arguments.method == "qlora",
            local_files_only=True,
        )
        self.model = FastLanguageModel.get_peft_model(
            model,
            r=self.arguments.rank,
            lora_alpha=self.arguments.rank,
            lora_dropout=0,
            bias="none",
            target_modules=LINEARS,
            use_gradient_checkpointing="unsloth" if checkpointing else False,
            random_state=0,
        )

    def _load_plain(self) -> None:
        from peft import LoraConfig

        rank = self.arguments.rank
        options: dict[str, Any] = {"dtype": torch.bfloat16}
        if ON_GPU:
            options["device_map"] = {"": 0}
        if self.arguments.method == "qlora":
            from transformers import BitsAndBytesConfig

            options["quantization_config"] = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=torch.bfloat16,
            )
        self.model = AutoModelForCausalLM.from_pretrained(self.arguments.model, **options)
        self.model.config.use_cache = False
        self.tokenizer = AutoTokenizer.from_pretrained(self.arguments.model)
        self.adapter = LoraConfig(
            r=rank, lora_alpha=rank, lora_dropout=0.0, bias="none", target_modules=LINEARS, task_type="CAUSAL_LM"
        )

    def run(self, workload: Workload) -> dict[str, Any]:
        """Time one workload; what goes wrong is said in the row."""
        row = {
            "program": self.arguments.stack,
            "model": Path(self.arguments.model).name,
            "method": self.arguments.method,
            "workload": workload.name,
            "load_s": round(self.load_s, 1),
            "load_peak_gib": round(self.load_peak_bytes / GIB, 3),
        }
        gc.collect()
        if ON_GPU:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            row |= self._train(workload)
        except Exception as error:
            traceback.print_exc()
            row["error"] = {"code": type(error).__name__, "message": str(error)[:300]}
        return row

    def _train(self, workload: Workload) -> dict[str, Any]:
        clock = Clock(workload)
        steps = workload.steps(self.model.config.vocab_size)
        rows = Dataset.from_list([{"input_ids": row} for step in steps for row in step])
        adapter = {"peft_config": self.adapter} if self.adapter is not None else {}
        trainer = SFTTrainer(
            model=self.model,
            args=self._settings(workload),
            train_dataset=rows,
            processing_class=self.tokenizer,
            callbacks=[clock],
            **adapter,
        )
        self.model, self.adapter = trainer.model, None
        lengths = [len(ids) for ids in trainer.train_dataset["input_ids"]]
        # The given order instead of a random one: the timed steps hold the same rows everywhere.
        trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(trainer.train_dataset)
        trainer.train()
        size = workload.batch_size
        timed = lengths[size * workload.num_warmup_steps :][: size * workload.num_steps]
        milliseconds = sorted(1000 * seconds for seconds in clock.timed_s)
        row: dict[str, Any] = {
            "tokens_per_s": round(sum(timed) / sum(clock.timed_s), 1),
            "tokens_per_step": round(sum(timed) / len(milliseconds)),
            "step_ms": round(milliseconds[len(milliseconds) // 2], 2),
            "num_steps": len(milliseconds),
            "loss_first": clock.losses[0],
            "loss_last": clock.losses[-1],
        }
        if ON_GPU:
            row["peak_gib"] = round(torch.cuda.max_memory_allocated() / GIB, 3)
            row["reserved_gib"] = round(torch.cuda.max_memory_reserved() / GIB, 3)
        return row

    def _settings(self, workload: Workload) -> SFTConfig:
        checkpointing = workload.checkpointing
        return SFTConfig(
            output_dir=self.arguments.scratch,
            per_device_train_batch_size=workload.batch_size,
            # Unsloth's own default is 2.
            gradient_accumulation_steps=1,
            dataloader_num_workers=0,
            max_steps=workload.num_warmup_steps + workload.num_steps,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            logging_steps=1,
            optim="adamw_8bit" if self.arguments.optimizer == "adamw_8bit" else "adamw_torch_fused",
            bf16=ON_GPU,
            max_length=workload.sequence_length,
            packing=workload.packed,
            gradient_checkpointing=checkpointing,
            gradient_checkpointing_kwargs={"use_reentrant": False} if checkpointing else None,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=0,
            use_cpu=not ON_GPU,
            use_liger_kernel=self.arguments.stack == "liger",
        )


def main() -> None:
    """Time what the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("stack", choices=STACKS)
    parser.add_argument("model")
    parser.add_argument("--method", choices=("lora", "qlora"), required=True)
    parser.add_argument("--workload", type=Workload.parse, action="append", required=True)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--optimizer", default="adamw_8bit")
    parser.add_argument("--scratch", required=True)
    arguments = parser.parse_args()
    # Libraries print to standard output; only rows belong there.
    rows = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    rival = Rival(arguments)
    for workload in arguments.workload:
        rows.write(json.dumps(rival.run(workload)) + "\n")
        rows.flush()


if __name__ == "__main__":
    main()
