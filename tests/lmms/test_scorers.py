"""Every scorer beside lmms-eval's own function, on hundreds of answers: equal, bit for bit."""

from __future__ import annotations

import copy
import itertools
import json
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from lmms_eval.api.metrics import anls, exact_match_hf_evaluate
from lmms_eval.tasks.chartqa import utils as chartqa
from lmms_eval.tasks.coco_cap_chair import utils as coco
from lmms_eval.tasks.hallusion_bench import evaluate_hb as hallusion
from lmms_eval.tasks.mmbench import en_utils as mmbench
from lmms_eval.tasks.mme import utils as mme
from lmms_eval.tasks.pope import utils as pope
from lmms_eval.tasks.textvqa import utils as textvqa

from tests.evaluate import data
from tests.lmms.answers import EDGES, made
from vicoset.evaluate import tasks
from vicoset.evaluate.sample import Sample
from vicoset.evaluate.scorers import chair
from vicoset.evaluate.statistics.units import unit_sums

COUNT = 2000


def both(name: str, root: Path, **more: Any) -> tuple[Any, list[Any], list[dict[str, Any]]]:
    """Our task, its items, and the rows of the data in the same order."""
    getattr(data, name)(root, **more)
    task = tasks.task(name)
    items = list(task.load(root))
    files = {"mmbench": "en/*", "docvqa": "DocVQA/*", "gqa": "testdev_balanced_instructions/*"}
    found = sorted(root.glob(files.get(name, "data/*.parquet")))
    docs = [row for file in found for row in pq.read_table(file).to_pylist()]
    assert len(docs) == len(items)
    return task, items, docs


def value(task: Any, items: Any, said: list[str]) -> tuple[float, dict[str, float]]:
    """The task's own aggregate and its further numbers."""
    samples = []
    for item, raw in zip(items, said, strict=True):
        _, stats, score = task.score(item, raw)
        about = (task.name, item.sample_id, item.unit_id, item.stratum, stats, score, item.groups)
        samples.append(Sample(*about))
    sums = unit_sums(task.name, {"m": samples}).totals(task.stratified)
    more = {name: float(metric.aggregate(sums)[0]) for name, metric in task.metrics.items()}
    return float(task.aggregate(sums)[0]), more


def one_by_one(name: str, root: Path, theirs: Any, golds: list[str]) -> list[float]:
    """Scores of answers one by one, equal on both sides."""
    task, items, docs = both(name, root)
    scores = []
    for place, raw in enumerate(made(golds, 1, COUNT)):
        item, doc = items[place % len(items)], copy.deepcopy(docs[place % len(items)])
        ours = task.score(item, raw).score
        # lmms-eval's evaluator strips an answer before a task sees it
        assert ours == theirs(doc, raw.strip()), (raw, doc)
        scores.append(ours)
    assert 0.02 < np.mean(scores) < 0.98
    return scores


def test_textvqa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def people(root: Path) -> None:
        """From none to all ten say Nokia."""
        rows = [
            {
                "question_id": number,
                "image_id": "one",
                "question": f"what is NUMBER {number}?",
                "answers": ["Nokia", "the nokia", "Nokia."][number % 3 :][:1] * number
                + ["dakota", "ten", "isn't", "it's 5 o'clock", *"bcdefgh"][: 10 - number],
                "image": data.picture(0),
            }
            for number in range(11)
        ]
        data.parquet(root / "data" / "validation-0.parquet", rows)

    monkeypatch.setattr(data, "textvqa", people)
    scores = one_by_one(
        "textvqa",
        tmp_path,
        lambda doc, raw: textvqa.textvqa_process_results(doc, [raw])["exact_match"],
        ["Nokia", "the nokia", "nokia.", "Dakota", "10", "isnt", "dakota."],
    )
    assert {0.0, 0.3, 0.6, 0.9, 1.0} == set(scores)  # agreement with 0 to 4 and more people


def test_chartqa(tmp_path: Path) -> None:
    one_by_one(
        "chartqa",
        tmp_path,
        lambda doc, raw: chartqa.chartqa_process_results(doc, [raw])["relaxed_overall"],
        ["10", "Yes", "0", "12.5%", "10.5", "9.5", "0.125", "10.49"],
    )


def test_docvqa(tmp_path: Path) -> None:
    scores = one_by_one(
        "docvqa",
        tmp_path,
        lambda doc, raw: anls(doc["answers"], [raw])["anls"],
        ["University of California", "Univ. of California", "University", "of California"],
    )
    assert any(0.5 <= score < 1 for score in scores)


def test_gqa(tmp_path: Path) -> None:
    def theirs(doc: Any, raw: str) -> float:
        options = {"ignore_case": True, "ignore_punctuation": True}
        found = exact_match_hf_evaluate([raw], [doc["answer"]], **options)["exact_match"]
        return float(found)

    one_by_one("gqa", tmp_path, theirs, ["yes", "red", "t-shirt", "tshirt", "Red."])


def test_pope(tmp_path: Path) -> None:
    task, items, docs = both("pope", tmp_path, n=700)
    said = made(["yes", "no", "Yes", "No"], 2, len(items))
    results = [pope.pope_process_results(d, [a.strip()]) for d, a in zip(docs, said, strict=True)]
    scored = [task.score(i, a).score for i, a in zip(items, said, strict=True)]
    assert scored == [r["pope_accuracy"]["score"] for r in results]
    columns = {key: [row[key] for row in results] for key in results[0]}
    found, more = value(task, items, said)
    assert found == pope.pope_aggregate_accuracy(columns["pope_accuracy"])
    assert more["precision"] == pope.pope_aggregate_precision(columns["pope_precision"])
    assert more["recall"] == pope.pope_aggregate_recall(columns["pope_recall"])
    assert more["f1"] == pope.pope_aggregate_f1_score(columns["pope_f1_score"])
    # Its yes ratio is that of the references; ours is of the answers.
    assert pope.pope_aggregate_yes_ratio(columns["pope_yes_ratio"]) == 0.5 != more["yes"]


@pytest.mark.parametrize("seed", range(20))
def test_mme_to_the_last_bit(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All 14 categories, of unequal size and in any order: the sum of their rounded points too."""
    dice = random.Random(seed)
    kinds = [*mme.eval_type_dict["Perception"], *mme.eval_type_dict["Cognition"]]
    dice.shuffle(kinds)
    monkeypatch.setattr(data, "COGNITION", tuple(kinds[:7]))
    monkeypatch.setattr(data, "PERCEPTION", tuple(kinds[7:]))
    task, items, docs = both("mme", tmp_path, pairs=dice.choice((19, 23, 37)))
    kept = [at for at, doc in enumerate(docs) if hash_of(doc["question_id"]) % 3]
    items, docs = [items[at] for at in kept], [docs[at] for at in kept]
    said = made(["yes", "no", "Yes.", "No, it"], seed, max(len(items), 500))[: len(items)]
    parts: dict[str, list[Any]] = {"mme_perception_score": [], "mme_cognition_score": []}
    for doc, raw, item in zip(docs, said, items, strict=True):
        ((key, row),) = mme.mme_process_results(doc, [raw.strip()]).items()
        parts[key].append(row)
        assert task.score(item, raw).score == row["score"]
    perception, cognition = (mme.mme_aggregate_results(rows) for rows in parts.values())
    found, more = value(task, items, said)
    assert (more["perception"], more["cognition"]) == (perception, cognition)
    assert found == perception + cognition != 0


def hash_of(text: str) -> int:
    return sum(map(ord, text))


@pytest.mark.parametrize("seed", range(3))
def test_mmbench(seed: int, tmp_path: Path) -> None:
    task, items, docs = both("mmbench", tmp_path, n=400)
    golds = ["A", "B", "C", "D", "apple", "banana", "The answer is B", "(A)", "C."]
    said = made(golds, seed, len(items))
    dice = random.Random(seed)
    for at, item in enumerate(items):  # else hardly a question has all of its rotations right
        if dice.random() < 0.6 and said[at] not in EDGES:
            letter = item.references["answer"]
            said[at] = dice.choice((letter, f"({letter})", f"{letter}.", f"Answer: {letter}"))
    rows = [
        mmbench.mmbench_process_results(doc, [raw])["gpt_eval_score"]
        for doc, raw in zip(docs, said, strict=True)
    ]
    theirs = mmbench.mmbench_evaluator.eval_result(rows, eval_method="static")[0]
    found, _ = value(task, items, said)
    assert found == theirs and 0.05 < found < 0.95
    for item, doc, raw in zip(items, docs, said, strict=True):  # and row by row
        row = mmbench.mmbench_process_results({**doc, "index": 0}, [raw])["gpt_eval_score"]
        alone = mmbench.mmbench_evaluator.eval_result([row], eval_method="static")[0]
        assert task.score(item, raw).score == alone, raw


@pytest.mark.parametrize("seed", range(50))
def test_hallusionbench(seed: int, tmp_path: Path) -> None:
    task, items, docs = both("hallusionbench", tmp_path)
    said = made(["yes", "no", "Yes, it is", "No."], seed, 800)[: len(items)]
    right = random.Random(seed)
    said = [i.references if right.random() < 0.6 else a for i, a in zip(items, said, strict=True)]

    def rows() -> list[Any]:
        pairs = zip(docs, said, strict=True)
        return [hallusion.hb_process_results(dict(d), [a.strip()])["aAcc"] for d, a in pairs]

    found, more = value(task, items, said)
    assert found == hallusion.hb_aggregation_result_aAcc_intern(rows())
    assert more["q_acc"] == hallusion.hb_aggregation_result_qAcc_intern(rows())
    assert more["f_acc"] == hallusion.hb_aggregation_result_fAcc_intern(rows())


CAPTIONS = (
    *("a man", "two dogs", "the baby bird", "a toilet seat", "a seat", "bow tie", "wine glass"),
    *("a motor bike", "hot dogs", "train tracks", "an adult cat", "passenger jets", "a stop sign"),
    *("people", "women", "knives", "the home plate", "stove top oven", "a cell phone", "mice"),
    *("nothing", "sky", "very big", "chairs", "potted plants", "laptop computers", "tv", "sheep"),
)


def test_chair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same stand-in for NLTK's data on both sides: merging, synonyms and rates are compared."""
    import nltk
    from nltk.stem import WordNetLemmatizer

    monkeypatch.setattr(nltk, "word_tokenize", lambda text: re.findall(r"\w+|[^\w\s]", text))
    monkeypatch.setattr(nltk, "pos_tag", lambda words: [(word, "NN") for word in words])
    monkeypatch.setattr(WordNetLemmatizer, "lemmatize", lambda self, w, pos="n": w.rstrip("s") or w)
    monkeypatch.setattr(chair, "_has", lambda nltk, place: True)
    parts = SimpleNamespace(ADJ="a", VERB="v", NOUN="n", ADV="r")
    monkeypatch.setattr(coco, "wordnet", parts)
    words = tmp_path / "synonyms.txt"
    classes: dict[str, list[str]] = {}
    for word, name in coco.INVERSE_SYNONYM_DICT.items():
        classes.setdefault(name, [name]).append(word)
    words.write_text("\n".join(", ".join(dict.fromkeys(row)) for row in classes.values()))
    synonyms = chair.Synonyms.read(words)
    lemmas = chair.lemmas_of("official", synonyms)
    dice, sums, rows = random.Random(0), dict[str, float](), []
    for number in range(1000):
        caption = ". ".join(", ".join(dice.choices(CAPTIONS, k=dice.randint(1, 6))) for _ in "ab")
        truth = dice.sample(sorted(classes), 30)
        _, theirs, _, merged = coco.caption_to_words(caption)
        found = synonyms.mentions(lemmas(caption))
        assert found.objects == theirs, caption
        # theirs takes the seat of a toilet out of its words; the length of a caption has all
        assert found.length - len(merged) in (0, merged_seats(lemmas(caption))), caption
        for name, count in chair.statistics(found, truth).items():
            sums[name] = sums.get(name, 0.0) + count
        doc = {"question_id": number, "gt_object": truth}
        rows.append(coco.coco_cap_chair_process_result(doc, [caption])["coco_cap_chair_i"])
    assert 100 * (sums["wrong_mentions"] / sums["mentions"]) == (
        coco.coco_cap_chair_aggregate_results_chair_i(rows)
    )
    assert 100 * (sums["wrong_captions"] / sums["captions"]) == (
        coco.coco_cap_chair_aggregate_results_chair_s(rows)
    )
    assert 100 * (sums["recalled"] / sums["objects"]) == (
        coco.coco_cap_chair_aggregate_results_recall(rows)
    )


def merged_seats(lemmas: list[str]) -> int:
    """Words "seat" that the rule of the toilet takes away."""
    pairs = sum(a == "toilet" and b == "seat" for a, b in itertools.pairwise(lemmas))
    return lemmas.count("seat") - pairs


def test_prompts_are_those_of_lmms_eval(tmp_path: Path) -> None:
    ask = "\nAnswer the question using a single word or phrase."
    short = {"pre_prompt": "", "post_prompt": ask}
    word = {"pre_prompt": "", "post_prompt": "\nAnswer the question with a single word."}
    ask = "\nAnswer with the option's letter from the given choices directly."
    letter = {"pre_prompt": "", "post_prompt": ask}
    asks = {
        "textvqa": (textvqa.textvqa_doc_to_text, short),
        "chartqa": (chartqa.chartqa_doc_to_text, word),
        "docvqa": (chartqa.chartqa_doc_to_text, short),  # the same concatenation
        "gqa": (chartqa.chartqa_doc_to_text, short),
        "mme": (mme.mme_doc_to_text, short),
        "pope": (pope.pope_doc_to_text, short),
        "mmbench": (mmbench.mmbench_doc_to_text, letter),
    }
    for name, (text, options) in asks.items():
        _, items, docs = both(name, tmp_path / name)
        assert [i.prompt for i in items] == [text(json.loads(plain(d)), options) for d in docs]


def plain(doc: dict[str, Any]) -> str:
    return json.dumps({k: v for k, v in doc.items() if k != "image"})
