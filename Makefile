# make demo | test | quick | lint | fuzz | format | clean. Everything is installed into $(VENV).
#
# PYTHON=python3.12   another interpreter (3.10 or newer)      PEERS=0   without the tests against torch
# TEST_GROUPS="pure model" only these groups of tests               SEED=1    another order of the tests

PYTHON ?= python3
VENV ?= .venv
PEERS ?= 1
SEED ?= 20261201
TEST_GROUPS ?= pure attacks native model server $(if $(filter 1,$(PEERS)),peers)
FUZZ_SECONDS ?= 20
MODELS := smollm2-135m gemma3-270m qwen2.5-coder-0.5b qwen2.5-coder-1.5b

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input install --quiet
STAMPS := $(VENV)/.stamps
NATIVE := CMakeLists.txt $(shell find native -type f -not -path 'native/tests/*')
CPP := $(shell find native -name '*.h' -o -name '*.cpp')

# The requirements of some extras, without installing the package again.
REQUIREMENTS := $(PY) -c 'import sys, importlib.metadata as m; \
	ends = tuple(f"extra == \"{x}\"" for x in sys.argv[1:]); \
	print(*(r.split(";")[0] for r in m.requires("isobit") if r.replace("\x27", "\"").endswith(ends)), sep="\n")'

.DELETE_ON_ERROR:
.PHONY: demo test quick lint fuzz format models clean

demo: $(STAMPS)/package
	@$(PY) -m isobit.cli.main pull smollm2-135m --progress > /dev/null
	@$(PY) -m isobit.cli.demo

test: $(STAMPS)/tools $(if $(filter 1,$(PEERS)),$(STAMPS)/peers) models
	@$(PY) tests/run_groups.py --seed $(SEED) $(TEST_GROUPS)

quick: $(STAMPS)/tools
	@$(PY) tests/run_groups.py --seed $(SEED) pure attacks native

lint: $(STAMPS)/tools
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run -Werror $(CPP)
	$(VENV)/bin/lint-imports

fuzz: $(STAMPS)/tools
	$(PY) tests/fuzz/fuzz_gguf.py --seconds $(FUZZ_SECONDS) --seed $(SEED)

format: $(STAMPS)/tools
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(CPP)

# Into the models folder, which is outside the clone: a second run finds them there.
models: $(STAMPS)/package
	@for name in $(MODELS); do $(PY) -m isobit.cli.main pull $$name --progress > /dev/null || exit; done

clean:
	rm -rf $(VENV) build dist

$(STAMPS)/venv:
	@command -v $(PYTHON) > /dev/null || { echo "make: $(PYTHON) is not there; install Python 3.10 or newer, or name it: make PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(sys.version_info < (3, 10) and f"make: $(PYTHON) is Python {v}; Isobit needs 3.10 or newer, name one: make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

# Editable, so that only a change of the C++ sources or of the project file builds again; without build isolation,
# so that it builds only what changed. CMake and Ninja come along where the system has none that will do.
$(STAMPS)/package: $(STAMPS)/venv pyproject.toml $(NATIVE)
	@command -v "$${CXX:-c++}" > /dev/null || { echo "make: no C++ compiler; install g++ 11 or clang 14, or newer" >&2; exit 1; }
	@echo "installing isobit into $(VENV) (builds the kernels, about a minute)" >&2
	@$(PIP) "scikit-build-core>=1.0" "nanobind>=3.1"
	@needs=$$($(PY) -c 'from scikit_build_core.build import get_requires_for_build_editable as f; print(*f({}))') && \
		{ test -z "$$needs" || $(PIP) $$needs; }
	@$(PIP) --no-build-isolation --editable .
	@touch $@

$(STAMPS)/tools: pyproject.toml | $(STAMPS)/package
	@echo "installing what tests and linters need" >&2
	@$(REQUIREMENTS) test lint hub > $@.txt
	@$(PIP) -r $@.txt
	@touch $@

$(STAMPS)/peers: pyproject.toml | $(STAMPS)/package
	@echo "installing the engines that tests compare with (PEERS=0 does without)" >&2
	@$(REQUIREMENTS) peers > $@.txt
	@$(PIP) -r $@.txt
	@touch $@
