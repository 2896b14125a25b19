package dl

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// Query describes a library and the places where it may be.
type Query struct {
	What   string   // what it is for, in words, for errors
	Env    string   // environment variable with its path; if it is set, nothing else is tried
	Names  []string // file names, the best first
	Wheels []string // folders of pip's wheels in site-packages/nvidia, e.g. "nccl/lib"
	Beside string   // pattern of files in the library's folder that the library opens later, see openBeside
	Get    string   // how to get it: the beginning of the error; "" for nothing
}

// Open opens the first candidate that the loader accepts.
func (q Query) Open() (*Lib, error) {
	lib, err := q.first()
	if err == nil {
		q.openBeside(lib)
		return lib, nil
	}
	if q.Get == "" || !Enabled { // without Enabled, another library would not help
		return nil, err
	}
	return nil, fmt.Errorf("%s: %w", q.Get, err)
}

func (q Query) first() (*Lib, error) {
	if path := os.Getenv(q.Env); q.Env != "" && path != "" {
		lib, err := Open(q.What, path)
		if err != nil {
			return nil, fmt.Errorf("%s is set: %w", q.Env, err)
		}
		return lib, nil
	}
	return Open(q.What, q.Candidates()...)
}

// openBeside opens files that the library will later open by their bare names. When they are open already, the loader finds them although
// it does not search their folder. Some wheels have libraries that do not know their own folder (NVRTC of CUDA 13.0). If a file is
// missing, the library reports it when it needs the file.
func (q Query) openBeside(lib *Lib) {
	if q.Beside == "" || !filepath.IsAbs(lib.Path) {
		return
	}
	for _, path := range glob(filepath.Join(filepath.Dir(lib.Path), q.Beside)) {
		_, _ = open(path)
	}
}

// Candidates lists what Open tries if the environment variable is not set. For each name that is first the bare name, for the loader's
// own search, and then every existing file of that name in a system folder or a wheel.
func (q Query) Candidates() []string {
	var out []string
	dirs := append(systemDirs(), wheelDirs(q.Wheels)...)
	for _, name := range q.Names {
		out = append(out, name)
		for _, dir := range dirs {
			path := filepath.Join(dir, name)
			if _, err := os.Stat(path); err == nil && !slices.Contains(out, path) {
				out = append(out, path)
			}
		}
	}
	return out
}

// systemDirs lists the folders of CUDA's libraries that are not in the loader's search path.
func systemDirs() []string {
	if runtime.GOOS == "windows" {
		base := os.Getenv("ProgramFiles")
		return append(fromEnv("CUDA_PATH", "bin", "bin/x64"),
			glob(filepath.Join(base, `NVIDIA GPU Computing Toolkit\CUDA\v*\bin`))...)
	}
	triplet := "x86_64-linux-gnu"
	if runtime.GOARCH == "arm64" {
		triplet = "aarch64-linux-gnu"
	}
	dirs := append(fromEnv("CUDA_HOME", "lib64", "lib"), fromEnv("CUDA_PATH", "lib64", "lib")...)
	dirs = append(dirs, "/usr/local/cuda/lib64")
	dirs = append(dirs, glob("/usr/local/cuda-*/lib64")...)
	dirs = append(dirs, "/usr/lib/"+triplet, "/usr/lib64", "/usr/lib/wsl/lib", "/usr/local/lib",
		"/usr/local/nvidia/lib64", "/run/opengl-driver/lib", "/opt/cuda/lib64")
	return append(dirs, fromEnv("CONDA_PREFIX", "lib")...)
}

// fromEnv joins the folder in an environment variable with each part. If the variable is not set, it returns nothing.
func fromEnv(key string, parts ...string) []string {
	base := os.Getenv(key)
	if base == "" {
		return nil
	}
	var out []string
	for _, part := range parts {
		out = append(out, filepath.Join(base, part))
	}
	return out
}

// glob returns the matches of a pattern in reverse lexical order, so that the newest version is first.
func glob(pattern string) []string {
	out, _ := filepath.Glob(pattern) // the only error is a malformed pattern
	slices.Reverse(out)
	return out
}

// wheelDirs lists the existing folders site-packages/nvidia/part of the Pythons of this machine. It runs none of them. They are the
// active virtual environment, conda's, the python3 in PATH (for a pyenv shim all versions of pyenv), the user's and the system's.
func wheelDirs(parts []string) []string {
	var out []string
	for _, site := range sitePackages() {
		for _, part := range parts {
			dir := filepath.Join(site, "nvidia", filepath.FromSlash(part))
			if _, err := os.Stat(dir); err == nil && !slices.Contains(out, dir) {
				out = append(out, dir)
			}
		}
	}
	return out
}

func sitePackages() []string {
	prefixes := append(fromEnv("VIRTUAL_ENV", ""), fromEnv("CONDA_PREFIX", "")...)
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		python := filepath.Join(dir, "python3")
		if runtime.GOOS == "windows" {
			python = filepath.Join(dir, "python.exe")
		}
		if info, err := os.Stat(python); err != nil || info.IsDir() {
			continue
		}
		prefixes = append(prefixes, prefixesOf(python)...)
	}
	var out []string
	for _, prefix := range prefixes {
		if runtime.GOOS == "windows" {
			out = append(out, filepath.Join(prefix, "Lib", "site-packages"))
			continue
		}
		out = append(out, glob(filepath.Join(prefix, "lib/python3*/site-packages"))...)
		out = append(out, glob(filepath.Join(prefix, "lib/python3*/dist-packages"))...)
	}
	if home, err := os.UserHomeDir(); err == nil {
		out = append(out, glob(filepath.Join(home, ".local/lib/python3*/site-packages"))...)
	}
	return append(out, glob("/usr/local/lib/python3*/dist-packages")...)
}

// prefixesOf lists the possible installation prefixes of an interpreter: the parent of its folder (the python of a virtual environment is
// a link to another folder), and those of the files that it links to, step by step.
func prefixesOf(python string) []string {
	dir := filepath.Dir(python)
	if runtime.GOOS == "windows" {
		return []string{dir, filepath.Dir(dir)} // of an installation, and of a virtual environment
	}
	if filepath.Base(dir) == "shims" {
		return glob(filepath.Join(filepath.Dir(dir), "versions/*"))
	}
	out := []string{filepath.Dir(dir)}
	for range 8 { // follow links
		to, err := os.Readlink(python)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(python), to)
		}
		python = to
		if dir := filepath.Dir(python); filepath.Base(dir) == "bin" {
			out = append(out, filepath.Dir(dir))
		}
	}
	return out
}
