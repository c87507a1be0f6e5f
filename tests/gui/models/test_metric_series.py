"""Columns that grow, thinning that loses no spike, smoothing that equals TensorBoard's loop."""

from __future__ import annotations

import numpy as np
import pytest

from tunesmith_gui.models.metric_series import MetricSeries, decimate, smooth, thin


def rows(first: int, last: int) -> np.ndarray:
    return np.array([(step, step * 2.0) for step in range(first, last + 1)], dtype=np.float64)


def test_series_grows_over_its_first_buffer_and_keeps_every_value() -> None:
    series = MetricSeries(("step", "loss"))
    for first in range(0, 5000, 100):
        series.extend(rows(first, first + 99))
    assert len(series) == 5000
    assert np.array_equal(series.column("loss"), np.arange(5000) * 2.0)


def test_truncation_drops_what_a_resumed_run_does_again() -> None:
    series = MetricSeries(("step", "loss"))
    series.extend(rows(1, 15))
    before = series.revision
    series.truncate_after(10)
    assert list(series.column("step")) == list(range(1, 11))
    assert series.revision > before
    series.extend(rows(11, 12))
    assert list(series.column("step")) == list(range(1, 13))


def test_last_passes_over_gaps() -> None:
    series = MetricSeries(("step", "loss"))
    series.extend(np.array([(1, 3.0), (2, np.nan)]))
    assert series.last("loss") == 3.0
    assert np.isnan(MetricSeries(("step",)).last("step"))


def test_decimation_keeps_spikes_ends_and_gaps() -> None:
    x, y = np.arange(100_000.0), np.sin(np.arange(100_000.0) / 1000)
    y[54_321], y[777] = 9.0, -9.0
    thin_x, thin_y = decimate(x, y, 800)
    assert len(thin_x) <= 1600
    assert (thin_y.max(), thin_y.min()) == (9.0, -9.0)
    assert (thin_x[0], thin_x[-1]) == (0.0, 99_999.0)
    assert (np.diff(thin_x) >= 0).all()
    assert decimate(x[:10], y[:10], 800)[1] is not None
    assert np.isnan(decimate(x, np.full(100_000, np.nan), 800)[1]).all()


def test_thin_keeps_first_and_last() -> None:
    x, y = thin(np.arange(10_000.0), np.arange(10_000.0), 1000)
    assert (len(x), x[0], y[-1]) == (1000, 0.0, 9999.0)


@pytest.mark.parametrize("weight", [0.0, 0.6, 0.99])
def test_smoothing_equals_the_plain_loop(weight: float) -> None:
    values = np.random.default_rng(1).normal(size=1000)
    values[[0, 500]] = np.nan
    expected, last, count = [], 0.0, 0
    for value in values:
        if np.isfinite(value):
            last = last * weight + (1 - weight) * value
            count += 1
            value = last / (1 - weight**count)
        expected.append(value)
    np.testing.assert_allclose(smooth(values, weight), expected, rtol=1e-9)


def test_smoothing_refuses_a_weight_of_one() -> None:
    with pytest.raises(ValueError, match="weight"):
        smooth(np.ones(3), 1.0)
