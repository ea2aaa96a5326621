import dataclasses
import json

import pytest

from mue.config.json import from_dict
from mue.config.presets import PRESETS, preset
from mue.config.schema import (
    AugmentConfig,
    CodebookConfig,
    ComputeConfig,
    Config,
    DataConfig,
    ModelConfig,
    TrainConfig,
)


def to_json(config: Config) -> str:
    return json.dumps(dataclasses.asdict(config))


def from_json(text: str) -> Config:
    return from_dict(Config, json.loads(text), "config")


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("length", ["short", "paper"])
def test_every_preset_survives_json(name, length):
    config = preset(name, length)
    assert from_json(to_json(config)) == config


def test_values_of_every_kind_survive_json():
    config = Config(
        method="exact",
        data=DataConfig(name="vector"),
        model=ModelConfig(backbone="mlp", levels=(7,), tail=(), widths=(3, 2, 1)),
        train=TrainConfig(lr=1 / 3, milestones=(), factors=(), seed=2**63 - 1),
        compute=ComputeConfig(channels_last=False),
    )
    assert from_json(to_json(config)) == config


def test_what_json_leaves_out_is_the_default():
    assert from_json("{}") == Config()
    assert from_json('{"train": {"steps": 7}}') == Config(train=TrainConfig(steps=7))


def test_a_whole_number_will_do_where_a_fraction_is_meant():
    lr = from_json('{"train": {"lr": 1}}').train.lr
    assert (lr, type(lr)) == (1.0, float)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"trian": {}}, r"config has no field 'trian'; did you mean 'train'\?"),
        ({"train": {"step": 1}}, r"config.train has no field 'step'; did you mean 'steps'\?"),
        ({"train": {"zzz": 1}}, "config.train has no field 'zzz'$"),
        ({"train": {"steps": 1.5}}, "config.train.steps must be a int, got 1.5"),
        ({"train": {"steps": True}}, "config.train.steps must be a int, got True"),
        ({"train": {"lr": "fast"}}, "config.train.lr must be a float, got 'fast'"),
        ({"compute": {"compile": 1}}, "config.compute.compile must be one of auto, on, off, got 1"),
        ({"compute": {"checkpointing": 1}}, "config.compute.checkpointing must be a bool, got 1"),
        (
            {"method": "magic"},
            "config.method must be one of vq, exact, probunet, heads, got 'magic'",
        ),
        ({"data": {"digit": 14.0}}, "config.data.digit must be one of 28, 14, got 14.0"),
        ({"model": {"levels": 8}}, "config.model.levels must be a list, got 8"),
        ({"model": {"levels": [8, "a"]}}, r"config.model.levels\[1\] must be a int, got 'a'"),
        ({"model": 3}, "config.model must be an object with the fields of ModelConfig"),
        ([], "config must be an object with the fields of Config"),
    ],
)
def test_json_that_is_no_configuration_is_refused_by_name(value, words):
    with pytest.raises(ValueError, match=words):
        from_json(json.dumps(value))


def test_a_run_of_before_a_field_was_renamed_is_still_read():
    old = {
        "data": {"views": {"rotate": 15.0}},
        "train": {"average": 0.9},
        "compute": {"graph": "off", "recompute": True},
    }
    assert from_json(json.dumps(old)) == Config(
        data=DataConfig(augment=AugmentConfig(rotate=15.0)),
        train=TrainConfig(ema=0.9),
        compute=ComputeConfig(cuda_graph="off", checkpointing=True),
    )


def test_a_switch_may_be_a_boolean_as_it_once_was():
    config = from_json('{"compute": {"bfloat16": true, "compile": false}}')
    assert (config.compute.bfloat16, config.compute.compile) == ("on", "off")


def test_a_removed_field_is_read_where_it_was_not_used_and_refused_where_it_was():
    unused = {"size": 4, "revive_every": 0, "revive_until": 0.5}
    assert from_dict(CodebookConfig, unused, "codebook") == CodebookConfig(size=4)
    with pytest.raises(ValueError, match="codebook has no field 'revive_every'"):
        from_dict(CodebookConfig, unused | {"revive_every": 7}, "codebook")
