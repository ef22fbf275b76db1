"""`raceway completion`: the script that completes commands and options in a shell."""

from __future__ import annotations

import os
from typing import Annotated, Literal

VARIABLE = "_RACEWAY_COMPLETE"


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], "Shell to print the script for."]) -> None:
    """Print the script that completes commands and options of `raceway` in a shell.

    bash: add `source <(raceway completion bash)` to ~/.bashrc. zsh: add `source <(raceway completion zsh)` to ~/.zshrc,
    after `compinit`. fish: `raceway completion fish > ~/.config/fish/completions/raceway.fish`.
    """
    from typer._completion_shared import get_completion_script

    print(get_completion_script(prog_name="raceway", complete_var=VARIABLE, shell=shell))


def answers_shells() -> bool:
    """Let the application answer the script of a shell, if that has started it; return whether it has."""
    is_asked = VARIABLE in os.environ
    if is_asked:
        from typer._completion_classes import completion_init

        completion_init()
    return is_asked
