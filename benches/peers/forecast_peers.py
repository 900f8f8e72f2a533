"""Lets one peer forecast the windows that benches/forecast.rs wrote.

Reads from DIR little-endian float32 tables without a header: train_ and valid_inputs [n, look_back] and _targets [n, horizon],
test_inputs [m, look_back], test_history [m, history] (oldest first, NaN in front where there is less). Values are scaled by the
series' span in the training data. Writes DIR/MODEL.f32: mean, q10, q50 and q90, each [m, horizon]. What has been forecast from
the same files before is not forecast again.

What each model is given:
  auto-arima, auto-ets, auto-theta  the last 300 values of each window, fitted anew for each; no season fits into them
  lightgbm                          30 values relative to the last one, and the last; one model a step, early stopping
  keras-lstm                        30 values as they are; two LSTM layers of 50 and a dense one, Adam, MSE, early stopping
Quantiles: the statistical models' own 80 % intervals; for the two others the errors on the validation windows, by step.
"""

import argparse
import hashlib
import json
import os
import pathlib
import sys
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("NIXTLA_ID_AS_COL", "1")

import numpy as np

STATISTICAL = {"auto-arima": "AutoARIMA", "auto-ets": "AutoETS", "auto-theta": "AutoTheta"}
LEARNT = {"lightgbm", "keras-lstm"}



def read(directory, meta, name, width):
    return np.fromfile(directory / f"{name}.f32", dtype="<f4").reshape(-1, meta[width])


def statistical(name, history, horizon):
    """Fits every window on its own. A model that cannot be fitted leaves the last value, and is counted."""
    from statsforecast import models

    model = getattr(models, STATISTICAL[name])(season_length=1)
    tables = np.empty((4, len(history), horizon), dtype=np.float32)
    failed = 0
    for at, row in enumerate(history):
        row = row[~np.isnan(row)].astype(np.float64)
        try:
            said = model.forecast(y=row, h=horizon, level=[80])
            mean, low, high = said["mean"], said["lo-80"], said["hi-80"]
            # A constant series has no interval.
            low, high = np.where(np.isfinite(low), low, mean), np.where(np.isfinite(high), high, mean)
            if not np.all(np.isfinite(mean)):
                raise ValueError("not finite")
        except Exception as error:  # noqa: BLE001: whatever went wrong, the window is still scored
            failed += 1
            if failed == 1:
                print(f"{name}: window {at}: {error!r}", file=sys.stderr)
            mean = low = high = np.repeat(row[-1], horizon)
        tables[:, at] = mean, low, mean, high
    if failed:
        print(f"{name}: {failed} of {len(history)} windows could not be fitted; the last value stands in", file=sys.stderr)
    return tables


def with_errors(mean, valid_mean, valid_targets):
    """Quantiles from the errors on the validation windows, by step."""
    low, middle, high = np.quantile(valid_targets - valid_mean, [0.1, 0.5, 0.9], axis=0)
    return np.stack([mean, mean + low, mean + middle, mean + high]).astype(np.float32)


def lightgbm_model(train, valid, test, seed):
    import lightgbm

    def features(inputs):
        last = inputs[:, -1:]
        return np.concatenate([inputs[:, :-1] - last, last], axis=1), last[:, 0]

    (x, y), (vx, vy) = train, valid
    (fx, last), (fvx, vlast), (ftx, tlast) = features(x), features(vx), features(test)
    mean, valid_mean = np.empty((len(test), y.shape[1])), np.empty(vy.shape)
    parameters = {
        "objective": "l2", "learning_rate": 0.05, "num_leaves": 31, "bagging_fraction": 0.8, "bagging_freq": 1,
        "feature_fraction": 0.8, "seed": seed, "num_threads": 1, "verbosity": -1,
    }
    for step in range(y.shape[1]):
        learnt = lightgbm.Dataset(fx, y[:, step] - last)
        model = lightgbm.train(
            parameters, learnt, num_boost_round=500, valid_sets=[learnt.create_valid(fvx, vy[:, step] - vlast)],
            callbacks=[lightgbm.early_stopping(25, verbose=False)],
        )
        mean[:, step] = model.predict(ftx) + tlast
        valid_mean[:, step] = model.predict(fvx) + vlast
    return with_errors(mean, valid_mean, vy)


def keras_model(train, valid, test, seed):
    import keras

    keras.utils.set_random_seed(seed)
    model = keras.Sequential([
        keras.Input((train[0].shape[1], 1)),
        keras.layers.LSTM(50, return_sequences=True),
        keras.layers.LSTM(50),
        keras.layers.Dense(train[1].shape[1]),
    ])
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="mse")
    stop = keras.callbacks.EarlyStopping(patience=5, restore_best_weights=True)
    model.fit(
        train[0][..., None], train[1], validation_data=(valid[0][..., None], valid[1]),
        epochs=30, batch_size=128, verbose=0, callbacks=[stop],
    )
    predict = lambda inputs: model.predict(inputs[..., None], batch_size=1024, verbose=0)
    return with_errors(predict(test), predict(valid[0]), valid[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--model", required=True, choices=[*STATISTICAL, *sorted(LEARNT)])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    directory, name = arguments.directory, arguments.model
    warnings.filterwarnings("ignore")

    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes())
    files = ["test_history"] if name in STATISTICAL else [
        "train_inputs", "train_targets", "valid_inputs", "valid_targets", "test_inputs"]
    for file in files:
        digest.update((directory / f"{file}.f32").read_bytes())
    stamp, output = directory / f"{name}.sha256", directory / f"{name}.f32"
    if output.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest():
        return

    meta = json.loads((directory / "meta.json").read_text())
    if name in STATISTICAL:
        tables = statistical(name, read(directory, meta, "test_history", "history"), meta["horizon"])
    else:
        pair = lambda part: (read(directory, meta, f"{part}_inputs", "look_back"),
                             read(directory, meta, f"{part}_targets", "horizon"))
        model = lightgbm_model if name == "lightgbm" else keras_model
        tables = model(pair("train"), pair("valid"), read(directory, meta, "test_inputs", "look_back"), arguments.seed)
    tables.astype("<f4").tofile(output)
    stamp.write_text(digest.hexdigest())


if __name__ == "__main__":
    main()
