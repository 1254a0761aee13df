"""Settings: where values come from, which wins, and what a mistake says."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

import pytest

from omniflow.links.port import LaneKind
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server import config
from omniflow_server.config import Flag
from omniflow_server.control.settings import ControlSettings


def load(text: str = "", environ: dict[str, str] | None = None, *flags: Flag, folder: Path) -> config.Configuration:
    file = folder / "omniflow.toml"
    file.write_text(text)
    return config.load(file=file, environ=environ or {}, flags=flags)


def source_of(configuration: config.Configuration, key: str) -> str:
    return next(value.source for value in configuration.values if value.key == key)


def test_load_without_anything_is_the_defaults() -> None:
    configuration = config.load(environ={})
    assert configuration.settings == config.Settings()
    assert {value.source for value in configuration.values} == {"default"}


def test_load_prefers_flag_over_variable_over_file_over_default(tmp_path: Path) -> None:
    text = "[control]\nlisten = 'file:1'\nmax_calls = 5\ndrain_timeout_s = 2\n"
    variables = {"OMNIFLOW_CONTROL_LISTEN": "variable:1", "OMNIFLOW_CONTROL_MAX_CALLS": "6"}
    flag = Flag(key="control.listen", text="flag:1", source="--listen")
    configuration = load(text, variables, flag, folder=tmp_path)
    control = configuration.settings.control
    assert (control.listen, control.max_calls, control.drain_timeout_s) == ("flag:1", 6, 2.0)
    assert source_of(configuration, "control.listen") == "--listen"
    assert source_of(configuration, "control.max_calls") == "OMNIFLOW_CONTROL_MAX_CALLS"
    assert source_of(configuration, "control.drain_timeout_s") == f"{tmp_path / 'omniflow.toml'}:4"
    assert source_of(configuration, "control.byte_credit") == "default"


def test_load_finds_the_file_that_the_variable_names(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("[supervisor]\nlog_keep = 7\n")
    configuration = config.load(environ={"OMNIFLOW_CONFIG": str(file)})
    assert configuration.settings.supervisor.log_keep == 7
    assert configuration.file == file


def test_load_names_the_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(OmniFlowError, match=r"there is no configuration file .*absent\.toml"):
        config.load(file=tmp_path / "absent.toml", environ={})


def test_load_names_the_line_of_a_syntax_error(tmp_path: Path) -> None:
    with pytest.raises(OmniFlowError, match=r"omniflow.toml cannot be read: .*line 2"):
        load("[control]\nlisten = = 3\n", folder=tmp_path)


def test_load_takes_environments_from_table_and_variable(tmp_path: Path) -> None:
    variables = {"OMNIFLOW_ENVIRONMENTS_ASSISTANT": "/opt/assistant/bin/python"}
    configuration = load("[environments]\nvision = '/opt/vision/bin/python'\n", variables, folder=tmp_path)
    assert configuration.settings.environments == {
        "vision": "/opt/vision/bin/python",
        "assistant": "/opt/assistant/bin/python",
    }
    assert source_of(configuration, "environments.assistant") == "OMNIFLOW_ENVIRONMENTS_ASSISTANT"


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        ("[control]\nlistn = 'x'\n", {}, r"control.listn: unknown key \(.*:2\); did you mean control.listen\?"),
        ("[contrl]\nlisten = 'x'\n", {}, r"contrl: unknown key \(.*:1\); did you mean control"),
        ("", {"OMNIFLOW_CONTROL_LISTN": "x"}, "no setting has the variable .*; did you mean OMNIFLOW_CONTROL_LISTEN"),
        ("", {"OMNIFLOW_CONTORL_LISTEN": "x"}, "did you mean OMNIFLOW_CONTROL_LISTEN"),
        ("[control]\nmax_calls = '5'\n", {}, r"control.max_calls: '5' is not a whole number .*:2"),
        ("[control]\nmax_calls = -1\n", {}, "control.max_calls: -1 is not a whole number that is 0 or more"),
        ("[control]\nmax_calls = true\n", {}, "True is not a whole number"),
        ("[control]\nlease_ttl_s = nan\n", {}, "nan is not a number that is 0 or more"),
        ("[control]\nlease_ttl_s = '3'\n", {}, "'3' is not a number"),
        ("[control]\nlisten = 3\n", {}, "3 is not text in quotes"),
        ("[control]\nflows = 'assistant'\n", {}, "'assistant' is not a list"),
        ("control = 3\n", {}, r"control: must be a table \(.*:1\)"),
        ("[environments]\nvision = 3\n", {}, "environments.vision: 3 is not text in quotes"),
        ("", {"OMNIFLOW_CONTROL_MAX_CALLS": "many"}, "'many' is not a whole number .*OMNIFLOW_CONTROL_MAX_CALLS"),
    ],
)
def test_load_refuses_a_mistake(text: str, variables: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(OmniFlowError, match=message) as caught:
        load(text, variables, folder=tmp_path)
    assert caught.value.reason is Reason.INVALID_CONFIG


def test_load_reports_every_mistake_at_once(tmp_path: Path) -> None:
    with pytest.raises(OmniFlowError) as caught:
        load("[control]\nlistn = 'x'\nmax_calls = -1\n[supervisor]\nlog_keep = 'x'\n", folder=tmp_path)
    assert [v.field for v in caught.value.violations] == ["control.listn", "control.max_calls", "supervisor.log_keep"]


def test_load_leaves_variables_of_roles_alone() -> None:
    config.load(environ={"OMNIFLOW_ASSISTANT_DEVICE": "cpu", "OMNIFLOW_PARENT_PID": "1", "OMNIFLOW_TARGET": "x"})


def test_load_splits_lists_of_variables_at_commas() -> None:
    configuration = config.load(environ={"OMNIFLOW_CONTROL_FLOWS": "assistant, path/to/flow.py:other,"})
    assert configuration.settings.control.flows == ("assistant", "path/to/flow.py:other")


@pytest.mark.parametrize(
    ("text", "lanes"),
    [
        ("zmq-ipc, unix-frames", (LaneKind.ZMQ_IPC, LaneKind.UNIX_FRAMES)),
        ("", ()),
        (None, (LaneKind.UNIX_FRAMES,)),
    ],
)
def test_lanes_are_named_in_the_order_of_preference(text: str | None, lanes: tuple[LaneKind, ...]) -> None:
    environ = {} if text is None else {"OMNIFLOW_CONTROL_LANES": text}
    assert config.load(environ=environ).settings.control.lanes == lanes


def test_lane_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(OmniFlowError, match="'pigeons' is not one of unix-frames, zmq-ipc"):
        config.load(environ={"OMNIFLOW_CONTROL_LANES": "pigeons"})


def test_shown_hides_who_may_enter_a_store() -> None:
    configuration = config.load(environ={"OMNIFLOW_CONTROL_METADATA_URL": "rediss://me:c0ffee@store:6379/1"})
    shown = {value.key: value.shown for value in configuration.values}
    assert shown["control.metadata_url"] == "rediss://(set)@store:6379/1"


def test_shown_hides_a_secret() -> None:
    configuration = config.load(environ={"OMNIFLOW_CONTROL_RESUME_KEY": "c0ffee"})
    shown = {value.key: value.shown for value in configuration.values}
    assert shown["control.resume_key"] == "(set)"
    assert "c0ffee" not in str(shown)


def test_settings_flag_without_a_value_says_how_to_write_it() -> None:
    with pytest.raises(OmniFlowError, match=r"write it as --set section\.key=value"):
        config.settings_flag("control.listen")


def test_parse_json_reads_what_dump_json_wrote() -> None:
    settings = ControlSettings(listen="127.0.0.1:1", flows=("a", "b"), lease_ttl_s=0.5)
    assert config.parse_json(ControlSettings, config.dump_json(settings), source="handed over") == settings


def test_parse_json_names_its_source() -> None:
    with pytest.raises(OmniFlowError, match=r"listn: unknown key \(control.json\)"):
        config.parse_json(ControlSettings, '{"listn": "x"}', source="control.json")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    colour: Colour = Colour.RED
    folder: Path = Path(".")
    is_loud: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit == 13:
            raise ValueError("limit 13 brings bad luck")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    inner: Inner
    ratios: tuple[float, ...] = ()


def test_parse_json_follows_the_type_hints_of_nested_dataclasses() -> None:
    text = '{"inner": {"colour": "blue", "folder": "/tmp", "is_loud": true, "limit": 3}, "ratios": [1, 0.5]}'
    expected = Outer(inner=Inner(colour=Colour.BLUE, folder=Path("/tmp"), is_loud=True, limit=3), ratios=(1.0, 0.5))
    assert config.parse_json(Outer, text, source="x") == expected
    assert config.parse_json(Outer, config.dump_json(expected), source="x") == expected


def test_parse_json_lists_the_members_of_an_enum() -> None:
    with pytest.raises(OmniFlowError, match="'green' is not one of red, blue"):
        config.parse_json(Outer, '{"inner": {"colour": "green"}}', source="x")


def test_parse_json_reports_a_rule_of_the_dataclass_under_its_section() -> None:
    with pytest.raises(OmniFlowError, match="inner: limit 13 brings bad luck"):
        config.parse_json(Outer, '{"inner": {"limit": 13}}', source="x")
