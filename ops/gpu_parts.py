# SPDX-License-Identifier: Apache-2.0
"""Stages of ops/gpu that are longer than what a call may have left: each keeps what it has done, and a later call goes on there.

A stage that resumes gets its earlier record, or {}, beside its seconds. Its result has "passed": None until all of it is done; who
finds something wrong begins anew the next time. Time that brings nothing forward is a failure: it would be so the next time, too."""
import json
import time

TEXT_MAX = 1 << 20
LEAST = 30  # seconds without which no stage begins: what it has begun in them is done in a second call, not in a tenth


class NotRun(Exception):
    """A stage cannot be run here, whatever its time."""


def lines(text):
    """What a program said a line of JSON at a time; the last line may be cut short."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def whole(passes, ended):
    """Of an ordered list, the passes of operations that are done: the last one is not, unless the program has ended."""
    return passes if ended else [one for one in passes if one["operation"] != passes[-1]["operation"]]


def check_operations(call, command, seconds, runs, before, more):
    """check-operations for each of `runs`, (name, arguments), as far as the seconds go: whether all passes are right. The number of
    operations that are done already is the last argument. more: the environment."""
    deadline, late, texts, notes = time.monotonic() + seconds, [], [], []
    result, forward, failed = {"passed": True, "whole": list(before.get("whole", []))}, 0, False
    for name, arguments in runs:
        passes = list(before.get(name, []))
        if name not in result["whole"]:
            done, left = len({one["operation"] for one in passes}), deadline - time.monotonic()
            code, text, said = call([*command, *arguments, str(done)], left, **more) if left > 0.1 else (None, "", "no time is left")
            new = whole(lines(text), code is not None)
            passes, forward = passes + new, forward + len(new)
            if code is None:
                late.append(name)
            elif code == 0 and passes:
                result["whole"].append(name)
            else:
                failed = True
            texts.append(f"{name}, exit code {code}: {said}")
        result[name] = passes
        wrong = sum(not one["right"] for one in passes)
        failed = failed or wrong > 0
        notes.append(f"{name}: {len(passes)} passes, {wrong} wrong" + (", more to do" if name in late else ""))
    stuck = late and forward == 0
    result["passed"] = False if failed or stuck else None if late else True
    result["note"] = "; ".join(notes) + ("; nothing was done in time" if stuck else "")
    return result if result["passed"] else dict(result, text="\n".join(texts)[-TEXT_MAX:])
