"""Sharing pieces out to rows, runs, and composing a row."""

import pytest
import torch

from vicoset.errors import ImageError
from vicoset.models.layout import (
    Picture,
    Prompt,
    compose,
    grid,
    in_time,
    runs,
    shared_out,
    shared_pieces,
    square,
)


@pytest.mark.parametrize(
    ("counts", "lengths", "expected"),
    [
        ([5], [5], [[5]]),
        ([5, 0, 7], [2, 3, 7], [[2, 3], [], [7]]),
        ([5, 5, 7, 7], [2, 3, 7], [[2, 3], [2, 3], [7], [7]]),
        ([5, 5, 7, 7], [2, 3, 2, 3, 7, 7], [[2, 3], [2, 3], [7], [7]]),
        ([0, 0, 4, 4], [4], [[], [], [4], [4]]),
        ([5, 0], [5, 0], [[5], []]),
        ([0, 0], [], [[], []]),
    ],
)
def test_shared_out(counts, lengths, expected):
    assert shared_out(counts, lengths) == expected


def test_pieces_are_indices_into_what_was_given():
    assert shared_pieces([3, 0, 4], [0, 3, 0, 4]) == [[1], [], [3]]


@pytest.mark.parametrize(
    ("counts", "lengths", "message"),
    [
        ([5], [4], "returned 4"),
        ([5], [], "returned 0"),
        ([4, 6], [5, 5], "split between rows"),
        ([6], [2, 1], "returned 3"),
    ],
)
def test_pieces_that_do_not_fit(counts, lengths, message):
    with pytest.raises(ImageError, match=message):
        shared_out(counts, lengths)


def test_runs():
    mask = torch.tensor([1, 1, 0, 1, 0, 0, 1, 1, 1]).bool()
    assert [run.tolist() for run in runs(mask)] == [[0, 1], [3], [6, 7, 8]]
    assert runs(torch.zeros(4, dtype=torch.bool)) == []


def prompt_of(visual, length):
    mask = torch.zeros(1, length, dtype=torch.bool)
    mask[0, visual] = True
    return Prompt(torch.ones(1, length, dtype=torch.long), torch.ones_like(mask), mask)


def test_an_image_beside_a_video_gets_the_middle_of_time():
    prompt = prompt_of([1, 2, 4, 5], 7)
    pictures = [
        Picture(torch.tensor([1, 2]), grid(1, 2)),
        Picture(
            torch.tensor([4, 5]), torch.cat([in_time(grid(1, 1), 0, 2), in_time(grid(1, 1), 1, 2)])
        ),
    ]
    structural = torch.zeros(7, dtype=torch.bool)
    structural[3] = True
    layout = compose(prompt, 0, pictures, structural)
    assert layout.coordinates.tolist() == [
        [0.5, 0.5, 0.25],
        [0.5, 0.5, 0.75],
        [0.25, 0.5, 0.5],
        [0.75, 0.5, 0.5],
    ]
    assert layout.text.tolist() == [0, 6]
    assert layout.image_ids.tolist() == [0, 0, 1, 1]


def test_images_that_overlap_are_an_error():
    prompt = prompt_of([1, 2, 3], 5)
    pictures = [
        Picture(torch.tensor([1, 3]), grid(1, 2)),
        Picture(torch.tensor([2]), grid(1, 1)),
    ]
    with pytest.raises(ImageError, match="overlap"):
        compose(prompt, 0, pictures, torch.zeros(5, dtype=torch.bool))


def test_no_pictures_no_layout():
    assert compose(prompt_of([], 3), 0, [], torch.zeros(3, dtype=torch.bool)) is None


def test_square():
    assert square(9).shape == (9, 2) and square(8) is None
