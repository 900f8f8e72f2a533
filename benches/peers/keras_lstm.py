"""Keras beside our LSTM: answers each line "forward BATCH COUNT" or "train BATCH COUNT" on standard input with the
milliseconds of that many passes, one after the other, so that the caller can alternate the two programs.

The model is two LSTM layers of 50 and a dense layer of 10 on [batch, 30, FEATURES], trained with Adam on the mean squared
error, on two threads. Of the ways to run it (graph, unrolled graph, XLA) the fastest is used; it is chosen once for each
kind of pass and batch, and told on standard error.
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

STEPS, HIDDEN, HORIZON, THREADS = 30, 50, 10, 2
WARM_UP, TRIALS = 3, 5


def build(features, unroll):
    model = keras.Sequential(
        [
            keras.Input((STEPS, features)),
            keras.layers.LSTM(HIDDEN, return_sequences=True, unroll=unroll),
            keras.layers.LSTM(HIDDEN, unroll=unroll),
            keras.layers.Dense(HORIZON),
        ]
    )
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def passes(features, kind, unroll, xla):
    """A compiled function of inputs and targets."""
    model, optimizer = build(features, unroll)

    @tf.function(jit_compile=xla)
    def forward(inputs, _targets):
        return model(inputs, training=False)

    @tf.function(jit_compile=xla)
    def train(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs, training=True) - targets))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return {"forward": forward, "train": train}[kind]


def timed(function, data):
    begin = time.perf_counter()
    function(*data).numpy()
    return (time.perf_counter() - begin) * 1e3


def fastest(features, kind, batch, data):
    """The fastest way to run a pass, by the median of a few."""
    best = None
    for name, unroll, xla in [("graph", False, False), ("unrolled graph", True, False), ("xla", False, True)]:
        try:
            function = passes(features, kind, unroll, xla)
            for _ in range(WARM_UP):
                timed(function, data)
            median = float(np.median([timed(function, data) for _ in range(TRIALS)]))
        except Exception as error:  # A way that this build does not support is no candidate.
            print(f"keras {kind} {batch}: {name} failed: {type(error).__name__}", file=sys.stderr)
            continue
        print(f"keras {kind} {batch}: {name} {median:.2f} ms", file=sys.stderr)
        if best is None or median < best[0]:
            best = (median, name, function)
    print(f"keras {kind} {batch}: using {best[1]}", file=sys.stderr, flush=True)
    return best[2]


def main():
    features = int(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(1)
    ready = {}
    for line in sys.stdin:
        kind, batch, count = line.split()
        key = (kind, int(batch))
        if key not in ready:
            inputs = tf.random.uniform((key[1], STEPS, features))
            data = (inputs, tf.random.uniform((key[1], HORIZON)))
            ready[key] = (fastest(features, kind, key[1], data), data)
        function, data = ready[key]
        print(" ".join(f"{timed(function, data):.4f}" for _ in range(int(count))), flush=True)


main()
