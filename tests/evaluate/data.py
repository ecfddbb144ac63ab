"""Small benchmarks on disk, in the column layouts of the public datasets."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

COGNITION = ("code_reasoning", "text_translation")
PERCEPTION = ("OCR", "existence", "color")
SYNONYMS = (
    "person, man, woman, people\ncat, kitten\ndog, puppy\nchair, seat\ntoilet\nbus\ntie, bow\n"
)


def encoded(seed: int, width: int = 48, height: int = 32) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).save(out, format="PNG")
    return out.getvalue()


def picture(seed: int) -> dict[str, Any]:
    return {"bytes": encoded(seed), "path": f"{seed}.png"}


def parquet(path: Path, rows: list[dict[str, Any]], group: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


def textvqa(root: Path, n: int = 8) -> Path:
    rows = [
        {
            "question_id": 34602 + i,
            "image_id": f"img{i // 2}",
            "question": f"what is the BRAND number {i}?",
            "answers": ["Nokia"] * (i % 5) + ["the nokia", "dakota"] * 5,
            "image": picture(i // 2),
        }
        for i in range(n)
    ]
    rows = [row | {"answers": row["answers"][:10]} for row in rows]
    parquet(root / "data" / "validation-00000-of-00002.parquet", rows[: n // 2])
    parquet(root / "data" / "validation-00001-of-00002.parquet", rows[n // 2 :])
    return root


def chartqa(root: Path, n: int = 8) -> Path:
    rows = [
        {
            "type": "human_test" if i % 2 else "augmented_test",
            "question": f"How many in {i}?",
            "answer": ["10", "Yes", "0", "12.5%"][i % 4],
            "image": picture(i // 2),
        }
        for i in range(n)
    ]
    parquet(root / "data" / "test-00000-of-00001.parquet", rows)
    return root


def docvqa(root: Path, n: int = 8) -> Path:
    rows = [
        {
            "questionId": str(49153 + i),
            "question": f"What is the date {i}?",
            "question_types": ["handwritten"],
            "image": picture(i // 2),
            "docId": 279 + i // 2,
            "ucsf_document_id": f"hs{i // 4}",
            "ucsf_document_page_no": str(i // 2),
            "answers": ["University of California", "Univ. of California"],
            "data_split": "val",
        }
        for i in range(n)
    ]
    parquet(root / "DocVQA" / "validation-00000-of-00001.parquet", rows)
    parquet(root / "InfographicVQA" / "validation-00000-of-00001.parquet", rows[:2])
    return root


def mme(root: Path, pairs: int = 3) -> Path:
    rows = [
        {
            "question_id": f"{category}/{pair:04d}.png",
            "image": picture(pair),
            "question": f"Is there number {pair}? Please answer yes or no.",
            "answer": answer,
            "category": category,
        }
        for category in (*COGNITION, *PERCEPTION)
        for pair in range(pairs)
        for answer in ("Yes", "No")
    ]
    parquet(root / "data" / "test-00000-of-00001.parquet", rows)
    return root


def pope(root: Path, n: int = 4) -> Path:
    rows = [
        {
            "id": str(k),
            "question_id": str(i + 1),
            "question": f"Is there a dog {i} in the image?",
            "answer": "no" if i % 2 else "yes",
            "image_source": f"COCO_val2014_{i // 2:012d}",
            "image": picture(i // 2),
            "category": category,
        }
        for k, category in enumerate(("adversarial", "popular", "random"))
        for i in range(n)
    ]
    parquet(root / "data" / "test-00000-of-00001.parquet", rows)
    return root


def mmbench(root: Path, n: int = 3) -> Path:
    options = ("apple", "banana", "pear", "plum")
    rows = []
    for turn in range(3):
        for i in range(n):
            shown = [options[(k + turn) % 4] for k in range(4)]
            gone = i == 0  # one question has two options; the public files say "nan"
            rows.append(
                {
                    "index": i + turn * 1_000_000,
                    "question": f"Which fruit {i}?",
                    "hint": "nan" if i % 2 else "Look closely.",
                    "answer": "AB"[turn % 2] if gone else "ABCD"[(i - turn) % 4],
                    **{c: "nan" if gone and c in "CD" else shown[k] for k, c in enumerate("ABCD")},
                    "category": "attribute",
                    "image": picture(i),
                    "source": "made",
                    "L2-category": "perception",
                    "comment": "nan",
                    "split": "dev",
                }
            )
    parquet(root / "en" / "dev-00000-of-00001.parquet", rows)
    parquet(root / "cn" / "dev-00000-of-00001.parquet", rows[:1])
    return root


def gqa(root: Path, n: int = 6) -> Path:
    rows = [
        {
            "id": f"2020{i}",
            "imageId": f"n{i // 2}",
            "question": f"Is it {i}?",
            "answer": ["yes", "red", "t-shirt"][i % 3],
            "fullAnswer": "Yes, it is.",
        }
        for i in range(n)
    ]
    images = [{"id": f"n{i}", "image": picture(i)} for i in range((n + 1) // 2)]
    parquet(root / "testdev_balanced_instructions" / "testdev-00000-of-00001.parquet", rows)
    parquet(root / "testdev_balanced_images" / "testdev-00000-of-00001.parquet", images)
    return root


def hallusionbench(root: Path) -> Path:
    rows = [
        {
            "category": category,
            "subcategory": "chart",
            "visual_input": "1",
            "set_id": str(set_id),
            "figure_id": str(figure),
            "sample_note": "",
            "question_id": str(question),
            "question": f"Is {question} above {figure}?",
            "gt_answer_details": "Yes." if (figure + question) % 2 else "No.",
            "gt_answer": str((figure + question) % 2),
            "filename": f"./{set_id}_{figure}.png",
            "image": picture(set_id * 3 + figure),
        }
        for category in ("VD", "VS")
        for set_id in range(2)
        for figure in range(2)
        for question in range(2)
    ]
    parquet(root / "data" / "image-00000-of-00001.parquet", rows)
    return root


def amber(root: Path, n: int = 6) -> Path:
    (root / "data" / "query").mkdir(parents=True)
    (root / "image").mkdir()
    queries, truth = [], [{"id": 1, "type": "generative", "truth": ["sky"], "hallu": ["dog"]}]
    for i in range(n):
        name = f"AMBER_{i // 2 + 1}.jpg"
        Image.open(io.BytesIO(encoded(i // 2))).save(root / "image" / name)
        queries.append({"id": 1005 + i, "image": name, "query": f"Is the sky {i} in this image?"})
        kind = "discriminative-hallucination" if i % 2 else "discriminative-attribute-state"
        truth.append({"id": 1005 + i, "type": kind, "truth": "no" if i % 2 else "yes"})
    (root / "data" / "query" / "query_discriminative.json").write_text(json.dumps(queries))
    (root / "data" / "annotations.json").write_text(json.dumps(truth))
    return root


def coco(root: Path, n: int = 3) -> Path:
    """Image i shows a person, an odd one a cat too; its captions name a dog from image 1 on."""
    (root / "annotations").mkdir(parents=True)
    (root / "val2014").mkdir()
    images, marks, captions = [], [], []
    for i in range(n):
        name = f"COCO_val2014_{i:012d}.jpg"
        Image.open(io.BytesIO(encoded(i))).save(root / "val2014" / name)
        images.append({"id": i, "file_name": name})
        marks.append({"image_id": i, "category_id": 1})
        marks += [{"image_id": i, "category_id": 17}] if i % 2 else []
        text = "Two puppies and a man." if i else "A man on the street."
        captions.append({"image_id": i, "caption": text})
    kinds = [{"id": 1, "name": "person"}, {"id": 17, "name": "cat"}]
    labels = {"images": images[::-1], "annotations": marks, "categories": kinds}
    (root / "annotations" / "instances_val2014.json").write_text(json.dumps(labels))
    notes = {"annotations": captions}
    (root / "annotations" / "captions_val2014.json").write_text(json.dumps(notes))
    (root / "synonyms.txt").write_text(SYNONYMS)
    return root


def answers(items: Any, seed: int = 0) -> list[str]:
    """Answers that look like a model's: often right, sometimes dressed, sometimes beside it."""
    dice = random.Random(seed)
    dressed = ("{}", "{}", " {} ", "{}.", "The answer is {}", "I think {}", "({})", "{}, there is")
    beside = ("yes", "no", "Yes", "No", "A", "B", "red", "10", "", "maybe", "the nokia", "Not sure")

    def one(item: Any) -> str:
        gold = item.references
        gold = gold.get("answer", "a man and a dog") if isinstance(gold, dict) else gold
        gold = dice.choice(gold) if isinstance(gold, list) else gold
        word = gold if dice.random() < 0.6 else dice.choice(beside)
        return dice.choice(dressed).format(word)

    return [one(item) for item in items]
