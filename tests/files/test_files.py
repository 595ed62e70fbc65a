"""Model files: what is saved comes back to the bit, and nothing else is opened."""

import json
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

import inducing as ig
from inducing import errors
from inducing.files import models as files
from inducing.files import records, tensors
from inducing.inference.regression import NAMES

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (60, 2))
y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.standard_normal(60)
XS = RNG.uniform(-3, 3, (50, 2))

WITH_DATA = ("pic", "cg")  # predictors that need their training data at every query
EXAMPLES = {
    "polynomial": ig.kernels.Polynomial(2),
    "trigonometric": ig.kernels.Trigonometric(2),
    "rbf columns": ig.kernels.RBF(1.3, columns=(1,)),
    "sum": ig.kernels.RBF([1.0, 2.0]) + ig.kernels.Linear(0.3),
    "product of sums": (ig.kernels.Matern12(1.0) + ig.kernels.Constant(0.1))
    * ig.kernels.Periodic(1.0, 4.0, columns=[0]),
}
KERNELS = {name: kind() for name, kind in ig.kernels.BY_NAME.items() if name not in EXAMPLES} | EXAMPLES


def quick(**parameters):
    return ig.SparseGPRegressor(**({"n_inducing": 10, "max_iter": 5, "random_state": 0} | parameters))


def assert_same(one, two, XS=XS):
    """Bit by bit: mean alone, mean and deviation, covariance, draws, for one and many queries."""
    for queries in (XS, XS[:1]):
        np.testing.assert_array_equal(one.predict(queries), two.predict(queries))
        for options in ({"return_std": True, "latent": True}, {"return_cov": True, "latent": True}):
            for a, b in zip(one.predict(queries, **options), two.predict(queries, **options), strict=True):
                np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.sample_y(XS, 2, latent=True), two.sample_y(XS, 2, latent=True))


@pytest.fixture(scope="module")
def model():
    return quick(basis="points").fit(pd.DataFrame(X, columns=["a", "b"]), y)


@pytest.fixture
def path(model, tmp_path):
    model.save(
        tmp_path / "model.safetensors", metadata={"target": "y", "numbers": [1, 2.5, None], "π": {"a": True}}
    )
    return tmp_path / "model.safetensors"


@pytest.mark.filterwarnings(
    "ignore::inducing.errors.JitterWarning"
)  # finite-dimensional kernels under ten points
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_kernel(kernel, tmp_path):
    model = quick(kernel=kernel, optimize=None).fit(X, y)
    model.save(tmp_path / "model")
    again = ig.load(tmp_path / "model")
    assert again.kernel_.spec() == model.kernel_.spec() and again.kernel.spec() == kernel.spec()
    assert_same(model, again)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("basis", ["points", "multiscale"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_DATA])
def test_every_approximation_basis_and_number_of_outputs(name, basis, outputs, tmp_path):
    Y = y if outputs == 1 else np.column_stack([y, 100 * y**2, np.full(60, 4.0)])
    model = quick(approximation=name, basis=basis).fit(X, Y)
    model.save(tmp_path / "model")
    again = ig.load(tmp_path / "model")
    assert_same(model, again)
    for a, b in zip(model.predict(XS, return_std=True), again.predict(XS, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    assert type(again.posterior_.basis) is type(model.posterior_.basis)


def test_everything_known_comes_back(model, path):
    again = ig.load(path)
    assert type(again) is ig.SparseGPRegressor
    assert again.metadata_ == {"target": "y", "numbers": [1, 2.5, None], "π": {"a": True}}
    for name in (
        "noise_",
        "log_evidence_",
        "basis_size_",
        "n_iter_",
        "n_features_in_",
        "y_mean_",
        "y_scale_",
    ):
        assert getattr(again, name) == getattr(model, name), name
    for name in ("x_mean_", "x_scale_", "feature_names_in_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    assert again.posterior_.log_evidence == model.posterior_.log_evidence
    assert again.get_params() == model.get_params()
    again.save(path)  # without new metadata the old ones stay
    assert ig.load(path).metadata_["target"] == "y"
    assert_same(model, ig.load(path), pd.DataFrame(XS, columns=["a", "b"]))


def test_constructor_parameters_come_back(tmp_path):
    parameters = dict(
        kernel=ig.kernels.RBF([1.0, 2.0]),
        approximation="pep",
        power=0.3,
        inducing=X[:7],
        noise=0.2,
        fixed=("noise",),
        priors={"kernel.variance": ig.LogNormal(1.0, 0.5, 2.0)},
        mean=ig.means.Linear([0.1, 0.2]),
        optimize="hyperparameters",
    )
    model = quick(**parameters).fit(X, y)
    model.save(tmp_path / "model")
    again = ig.load(tmp_path / "model")
    assert_same(model, again)
    np.testing.assert_array_equal(again.inducing, X[:7])
    assert (again.power, again.noise, again.fixed, again.priors) == (
        0.3,
        0.2,
        ("noise",),
        parameters["priors"],
    )
    assert again.mean.spec() == parameters["mean"].spec()
    np.testing.assert_array_equal(again.fit(X, y).predict(XS), model.predict(XS))


def test_a_posterior_comes_back(tmp_path):
    Y = np.column_stack([y, y**2])
    for name in ("fitc", "sor", "exact"):
        mean = ig.means.Constant([1.0, 2.0])
        post = ig.condition(ig.kernels.Matern52(1.0), ig.bases.Points(X[:9]), name, 0.1, X, Y, mean=mean)
        files.save(post, tmp_path / "post")
        again = ig.load(tmp_path / "post")
        assert type(again) is ig.Posterior and again.conditional == post.conditional
        for a, b in zip(post.predict(XS), again.predict(XS), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        assert again.log_evidence == post.log_evidence
    files.save(post.prune(5), tmp_path / "post")
    assert len(ig.load(tmp_path / "post")) == 5 and ig.load(tmp_path / "post").log_evidence is None
    files.save(ig.prior(ig.kernels.RBF(1.0)), tmp_path / "post")
    np.testing.assert_array_equal(ig.load(tmp_path / "post").predict(XS)[1], 1.0)


def test_the_file_is_small_and_readable_without_the_library(model, path):
    """m basis functions and m × m numbers: the size does not grow with the data."""
    held = load_file(path)
    assert sorted(held) == ["A.upper", "basis.Z", "noise", "w", "x_mean", "x_scale", "y_mean", "y_scale"]
    assert held["A.upper"].shape == (55,)  # the only one that grows with the square of m
    many = np.random.default_rng(1).uniform(-3, 3, (3000, 2))
    quick(max_iter=1).fit(many, many[:, 0]).save(path.with_name("large"))
    assert abs(path.with_name("large").stat().st_size - path.stat().st_size) < 500
    head = read_head(path)["__metadata__"]
    assert head["format"] == "inducing" and head["format_version"] == "2"
    record = json.loads(head["model"])
    assert record["kernel"]["name"] == "RBF" and record["library_version"] == ig.__version__


def test_a_default_model_has_what_predictions_need_and_a_full_one_the_factor(tmp_path):
    """The first makes L again from kernel, basis and jitter; both give the model back to the bit here."""
    model = quick(n_inducing=40).fit(X, y)
    sizes = [model.save(tmp_path / "model"), model.save(tmp_path / "full", full=True)]
    assert sizes[0] < 40 * 41 / 2 * 8 + 40 * 3 * 8 + 5000 < sizes[1] < 1.9 * sizes[0] + 3500
    assert load_file(tmp_path / "full")["remade.L.lower"].shape == (820,)
    for name in ("model", "full"):
        again = ig.load(tmp_path / name)
        assert_same(model, again)
        np.testing.assert_array_equal(again.posterior_.L, model.posterior_.L)
        np.testing.assert_array_equal(
            again.posterior_.prune(9).predict(XS), model.posterior_.prune(9).predict(XS)
        )
        assert again.save(tmp_path / "again") == sizes[0]


@pytest.mark.parametrize("factor", ["lower", "upper", "square"])
def test_triangles_are_packed_and_come_back(factor):
    stack = np.random.default_rng(3).standard_normal((2, 5, 5))
    arrays = {"others.A": {"lower": np.tril, "upper": np.triu, "square": np.array}[factor](stack), "w": stack}
    small = tensors.packed(arrays)
    name = "others.A" if factor == "square" else f"others.A.{factor}"
    assert set(small) == {name, "w"} and small[name].size == (50 if factor == "square" else 30)
    for name, value in tensors.unpacked(small).items():
        np.testing.assert_array_equal(value, arrays[name])


def test_a_factor_that_is_not_the_priors_is_kept(tmp_path):
    """That of a process pruned, updated or made under another jitter."""
    post = quick().fit(X, y).posterior_.prune(6)
    files.save(post, tmp_path / "post")
    assert "L.lower" in load_file(tmp_path / "post")
    np.testing.assert_array_equal(ig.load(tmp_path / "post").L, post.L)


def test_noise_per_row_stays_out(tmp_path):
    model = quick(noise=np.full(60, 0.1)).fit(X, y)
    model.save(tmp_path / "model")
    again = ig.load(tmp_path / "model")
    assert again.noise_ is None and again.noise is None
    assert_same(model, again)
    with pytest.raises(errors.ParameterError, match="latent=True"):
        again.predict(XS, return_std=True)


def test_random_states_and_numpy_numbers_are_no_obstacle(tmp_path):
    model = quick(random_state=np.random.RandomState(0), n_inducing=np.int64(9), jitter=np.float64(1e-8)).fit(
        X, y
    )
    model.save(
        tmp_path / "model", metadata={"n": np.int64(3), "x": np.array([1.0, 2.0]), "nan": float("nan")}
    )
    again = ig.load(tmp_path / "model")
    assert (
        again.metadata_["n"] == 3 and again.metadata_["x"] == [1.0, 2.0] and np.isnan(again.metadata_["nan"])
    )
    assert again.random_state is None and again.n_inducing == 9


BEFORE = json.loads((Path(__file__).parent / "written_before.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", BEFORE["files"])
def test_files_of_version_1_written_before_are_read(name, tmp_path):
    """Each with its checksum as it was then, and what the model that wrote it predicted."""
    held, queries = BEFORE["files"][name], np.array(BEFORE["queries"])
    head = {"format": "inducing", "format_version": "1", "model": held["model"], "sha256": held["sha256"]}
    save_file({key: np.array(value) for key, value in held["tensors"].items()}, tmp_path / "model", head)
    model = ig.load(tmp_path / "model")
    assert type(model).__name__ == json.loads(held["model"])["class"]
    if name == "regressor":
        queries = pd.DataFrame(queries, columns=["a", "b"])
        assert model.priors == {"kernel.variance": ig.LogNormal(1.0, 0.5)} and model.n_inducing == 6
    if name == "density":
        answers = model.pdf(queries, return_std=True)
    elif name == "posterior":
        answers = model.predict(queries)
    elif name == "classifier of three":  # whose probabilities were scaled to a sum of one then
        Xs = (queries - model.x_mean_) / model.x_scale_
        each = [model.likelihood_.probability(*post.predict(Xs)) for post in model.posteriors_]
        answers = [np.stack(each, axis=1) / np.sum(each, axis=0)[:, None]]
    elif name.startswith("classifier"):
        answers = [model.predict_proba(queries)]
    else:
        answers = model.predict(queries, return_std=True)
    for answer, expected in zip(answers, held["predictions"], strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-10)


# What cannot be saved.


@pytest.mark.parametrize("name", WITH_DATA)
def test_what_keeps_the_data_cannot_be_saved(name, tmp_path):
    with pytest.raises(errors.ModelFileError, match="training data"):
        quick(approximation=name).fit(X, y).save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("metadata", [{"a": object()}, {"a": {1, 2}}, [1, 2]])
def test_metadata_must_be_json(model, tmp_path, metadata):
    with pytest.raises(errors.ParameterError, match="metadata"):
        model.save(tmp_path / "model", metadata=metadata)
    assert list(tmp_path.iterdir()) == []


def test_an_unfitted_model_cannot_be_saved(tmp_path):
    with pytest.raises(errors.ParameterError, match="not fitted"):
        quick().save(tmp_path / "model")


def test_a_failed_write_leaves_the_old_file_and_no_other(model, path, monkeypatch):
    before = path.read_bytes()

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(errors.ModelFileError, match="No space left"):
        model.save(path, metadata={})
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]
    monkeypatch.undo()
    with pytest.raises(errors.ModelFileError, match="cannot be written"):
        model.save(path.parent / "nowhere" / "model")


# What is not opened.


def read_head(path):
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + size])


def refused(path, words="corrupt", light=False):
    with pytest.raises(errors.ModelFileError, match=words) as caught:
        ig.load(path, light=light)
    message = str(caught.value)
    assert path.name in message and "\n" not in message
    return message


def test_missing_and_foreign_files(tmp_path):
    refused(tmp_path / "nothing", "there is no model file")
    refused(tmp_path, "there is no model file")
    for name, content in {
        "empty": b"",
        "text": b"hello, world, this is not a model",
        "zeros": bytes(4096),
        "pickle": pickle.dumps({"a": 1}),
        "huge head": struct.pack("<Q", 2**60) + b"{}",
    }.items():
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, "no model file")
    save_file({"weight": np.ones(3)}, tmp_path / "other")
    refused(tmp_path / "other", "something else")
    save_file({"weight": np.ones(3)}, tmp_path / "other", {"format": "pt"})
    refused(tmp_path / "other", "something else")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_truncated_files(path, share):
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    refused(path, "truncated or corrupt")


def test_appended_bytes(path):
    path.write_bytes(path.read_bytes() + b"\0" * 16)
    refused(path)


def test_flipped_bytes(path):
    """At every one of 300 places, in the head and in the tensors, a flip of one bit is noticed."""
    raw = path.read_bytes()
    for position in np.linspace(0, len(raw) - 1, 300).astype(int):
        altered = bytearray(raw)
        altered[position] ^= 1 << int(position % 8)
        path.write_bytes(altered)
        try:
            ig.load(path)
        except errors.ModelFileError:
            continue
        # JSON allows spaces around: only a change that changes nothing may pass
        assert read_head(path) == read_head_of(raw), (
            f"a flip at byte {position} of {len(raw)} was not noticed"
        )


def read_head_of(raw):
    (size,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + size])


def forged(path, change):
    """A file with a right checksum whose record and tensors `change` has altered: what a stranger could
    write.
    """
    record, tensors = files.read(path)
    change(record, tensors)
    text = json.dumps(record)
    head = {"format": "inducing", "format_version": "1", "model": text, "sha256": files.digest(text, tensors)}
    save_file(tensors, path, head)
    return path


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("'L' is missing", lambda record, tensors: (tensors.pop("remade.L"), tensors.pop("A"))),
        ("'A' of shape", lambda record, tensors: (tensors.pop("remade.L"), tensors.update(A=np.eye(3)))),
        ("no triangle", lambda record, tensors: tensors.update({"A.upper": np.ones(11)})),
        ("no triangle", lambda record, tensors: tensors.update({"A.lower": np.array(1.0)})),
        ("'w' is missing", lambda record, tensors: tensors.pop("w")),
        ("'basis.Z' is missing", lambda record, tensors: tensors.pop("basis.Z")),
        ("'x_scale' is missing", lambda record, tensors: tensors.pop("x_scale")),
        ("'A' of shape", lambda record, tensors: tensors.update(A=np.eye(3))),
        ("'w' of shape", lambda record, tensors: tensors.update(w=np.ones((4, 1)))),
        ("'w' of shape", lambda record, tensors: tensors.update(w=np.ones((10, 2)))),
        ("wrong type float32", lambda record, tensors: tensors.update(A=tensors["A"].astype(np.float32))),
        ("wrong type .* shape", lambda record, tensors: tensors.update(A=tensors["A"].ravel())),
        ("NaN", lambda record, tensors: tensors["remade.L"].fill(np.nan)),
        ("infinity", lambda record, tensors: tensors["basis.Z"].fill(np.inf)),
        ("'x_mean' of shape", lambda record, tensors: tensors.update(x_mean=np.zeros(5))),
        ("'y_scale' of shape", lambda record, tensors: tensors.update(y_scale=np.array(-1.0))),
        ("'noise' of shape", lambda record, tensors: tensors.update(noise=np.array(-1.0))),
        ("does not describe a model", lambda record, tensors: tensors["remade.L"].fill(0.0)),
        ("no kernel 'os.system'", lambda record, tensors: record["kernel"].update(name="os.system")),
        ("no parameter", lambda record, tensors: record["kernel"].update(surprise=1)),
        ("positive", lambda record, tensors: record["kernel"].update(variance=-1.0)),
        ("lengthscales", lambda record, tensors: record["kernel"].update(lengthscale=[1.0, 2.0, 3.0])),
        ("does not describe", lambda record, tensors: record["kernel"].update(columns=[7])),
        ("does not describe", lambda record, tensors: record.update(kernel=None)),
        ("no mean", lambda record, tensors: record["mean"].update(name="eval")),
        ("unknown kind", lambda record, tensors: record.update(basis="Everything")),
        ("unknown test conditional", lambda record, tensors: record.update(conditional="none")),
        ("'builtins.exec'", lambda record, tensors: record.update({"class": "builtins.exec"})),
        ("does not describe", lambda record, tensors: record.pop("class")),
        ("does not describe", lambda record, tensors: record.pop("parameters")),
        ("does not describe", lambda record, tensors: record["parameters"].pop("jitter")),
        ("names 1 features for 2", lambda record, tensors: record.update(feature_names=["a"])),
        ("names 1 features for 2", lambda record, tensors: record.update(feature_names=["a", "a"])),
        ("metadata", lambda record, tensors: record.update(metadata=[1])),
    ],
)
def test_forged_files(model, path, words, change):
    model.save(path, full=True)
    refused(forged(path, change), words)


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("processes do not fit", lambda record, tensors: record.update(noise_posterior=None)),
        ("processes do not fit|row by row", lambda record, tensors: record.update(likelihood=None)),
        ("'noise.w' of shape", lambda record, tensors: record["noise_posterior"].update(one_output=False)),
        (
            "'noise.w' of shape",
            lambda record, tensors: (
                record["noise_posterior"]["kernel"].update(lengthscale=1.0),
                tensors.update({"noise.basis.Z": tensors["noise.basis.Z"][:, :1].copy()}),
            ),
        ),
        ("'x_scale' of shape", lambda record, tensors: tensors["x_scale"].fill(0.0)),
        ("'y_scale' of shape", lambda record, tensors: tensors.update(y_scale=np.array(-1.0))),
        ("columns do not give 2 inputs", lambda record, tensors: record["encoder"].update(columns=[])),
        ("cannot be read", lambda record, tensors: record["encoder"]["options"].update(missing_values=None)),
        ("metadata", lambda record, tensors: record.update(metadata=[1])),
    ],
)
def test_forged_files_of_learned_noise(tmp_path, words, change, light):
    """Refused when they are read, whole or for predictions alone, not when they are asked."""
    rows = pd.DataFrame(X, columns=["a", "b"])
    quick(noise="learned", max_iter=1, kernel=ig.kernels.RBF(1.0)).fit(rows, y).save(tmp_path / "m")
    refused(forged(tmp_path / "m", change), words, light)


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("classes", [[], [True]])
def test_forged_files_of_too_few_classes(tmp_path, classes, light):
    model = ig.SparseGPClassifier(n_inducing=5, max_iter=1, random_state=0).fit(X, y > np.median(y))
    model.save(tmp_path / "m")
    path = forged(tmp_path / "m", lambda record, tensors: record.update(classes=classes))
    refused(path, f"has {len(classes)} classes", light)


def test_other_versions(path):
    record, tensors = files.read(path)
    text = json.dumps(record)
    for version in ("0", "3", "1000", "one"):
        save_file(
            tensors,
            path,
            {"format": "inducing", "format_version": version, "model": text, "sha256": "0" * 64},
        )
        assert f"format version {version}" in refused(path, "not 1 or 2")


def test_json_that_is_none(path):
    _, tensors = files.read(path)
    for text in ("", "[]", "{", "[" * 100_000):
        head = {
            "format": "inducing",
            "format_version": "1",
            "model": text,
            "sha256": files.digest(text, tensors),
        }
        save_file(tensors, path, head)
        refused(path, "does not describe a model")


@pytest.mark.parametrize("light", [False, True])
def test_the_factor_of_an_exact_process_is_bounded_on_request(tmp_path: Path, light: bool) -> None:
    X = np.random.default_rng(0).normal(size=(200, 2))
    model = ig.SparseGPRegressor("rbf", "exact", max_iter=1, random_state=0).fit(X, X[:, 0])
    model.save(tmp_path / "m")
    needed = 8 * 200**2
    ig.load(tmp_path / "m", light=light, max_bytes=needed)
    words = f"its factor takes {needed} bytes, beyond max_bytes={needed - 1}"
    with pytest.raises(errors.ModelFileError, match=words):
        ig.load(tmp_path / "m", light=light, max_bytes=needed - 1)


def test_inputs_may_be_as_large_as_floats_and_all_else_less():
    """The mean and scale of inputs are in their own units; of what is squared the square is to be a float."""
    arrays = {"x_mean": np.array([1e300, -1.0]), "w": np.array([[1e152, -1e152]]), "A": np.array([[1e153]])}
    for name in ("x_mean", "w"):
        np.testing.assert_array_equal(records.array(arrays, name), arrays[name])
    for name, value in (("A", 1e153), ("x_mean", np.inf), ("w", np.nan)):
        with pytest.raises(errors.ModelFileError, match=f"{name!r} holds NaN, infinity or a number beyond"):
            records.array({name: np.array([0.0, value])}, name)


@pytest.mark.parametrize("m", [1, 7, 100])
def test_the_size_of_a_basis_that_fits_a_file(m):
    """Two square matrices of doubles beside 4,000 bytes, with as much again to spare."""
    room = 4000 + 4 * 8 * m**2
    assert files.fitting_size(room) == m and files.fitting_size(np.int64(room)) == m
    assert files.fitting_size(room - 1) == max(m - 1, 1)
    assert files.fitting_size(0) == files.fitting_size(None) == 1


@pytest.mark.parametrize("path", [5, None, True, ["a"]])
def test_a_path_of_another_kind_is_named(path):
    model = ig.SparseGPRegressor("rbf", "exact", max_iter=1).fit(np.arange(8.0)[:, None], np.arange(8.0))
    for call in (model.save, model.explain, ig.load):
        with pytest.raises(errors.ParameterError, match="path must be the name of a file, as text or a Path"):
            call(path)
