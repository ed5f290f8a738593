// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// MaxFiles is how many files one dataset can have.
const MaxFiles = 10_000

// File is a file of a dataset and what it was when the dataset was loaded.
type File struct {
	Path string // absolute
	size int64
	mod  time.Time
}

// Files lists the files that path names: a file, a folder (its files with the extension, such as ".parquet", not those of
// folders in it), or a pattern as [filepath.Match] has them. The order is that of the names. A dataset without any file is an
// error: an empty answer would look like one that was computed. Files that come later are not part of the dataset.
func Files(dir, path, ext string) ([]File, error) {
	if path == "" {
		return nil, fmt.Errorf("path is missing")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	names := []string{path}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		names = nil
		for _, e := range entries {
			if !e.IsDir() && strings.EqualFold(filepath.Ext(e.Name()), ext) {
				names = append(names, filepath.Join(path, e.Name()))
			}
		}
	case err == nil:
	case strings.ContainsAny(path, "*?["):
		if names, err = filepath.Glob(path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	default:
		return nil, err
	}
	slices.Sort(names)
	if len(names) == 0 || len(names) > MaxFiles {
		return nil, fmt.Errorf("%s: %d files (at least one and at most %d)", path, len(names), MaxFiles)
	}
	files := make([]File, len(names))
	for i, n := range names {
		info, err := os.Stat(n)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: %w: not a regular file", n, fs.ErrInvalid)
		}
		files[i] = File{n, info.Size(), info.ModTime()}
	}
	return files, nil
}

// Unchanged reports whether the files are those that were listed: same size, same time of change.
func Unchanged(files []File) bool {
	for _, f := range files {
		info, err := os.Stat(f.Path)
		if err != nil || info.Size() != f.size || !info.ModTime().Equal(f.mod) {
			return false
		}
	}
	return true
}
