package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a file of an archive.
type file struct {
	name    string // with slashes
	mode    fs.FileMode
	content []byte
}

// files returns the files of an archive: the binary, and the files that belong to it.
func (r *release) files(t target, binary, pages string) ([]file, error) {
	sources := map[string]string{ // name in the archive: path
		filepath.Base(binary): binary,
		"keygate.yaml":        filepath.Join(r.root, "deploy", "archive.yaml"),
	}
	if t.os == "linux" {
		sources["systemd/keygate.service"] = filepath.Join(r.root, "deploy", "systemd", "keygate.service")
		sources["systemd/keygate.socket"] = filepath.Join(r.root, "deploy", "systemd", "keygate.socket")
	}
	documents, err := r.documents()
	if err != nil {
		return nil, err
	}
	maps.Copy(sources, documents)
	for _, dir := range []string{"completions", "man1"} {
		entries, err := os.ReadDir(filepath.Join(pages, dir))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			sources[dir+"/"+e.Name()] = filepath.Join(pages, dir, e.Name())
		}
	}
	var all []file
	for name, path := range sources {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		mode := fs.FileMode(0o644)
		if path == binary {
			mode = 0o755
		}
		all = append(all, file{name, mode, content})
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// documents returns the documents that archives and packages have, with the rules for alerts and the dashboard of Grafana:
// the path of each by its name, which is that in the repository, so that their links to each other hold.
func (r *release) documents() (map[string]string, error) {
	all := map[string]string{}
	add := func(name string) { all[filepath.ToSlash(name)] = filepath.Join(r.root, name) }
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md"} {
		add(name)
	}
	for _, dir := range []string{"docs", filepath.Join("deploy", "grafana")} {
		err := fs.WalkDir(os.DirFS(r.root), filepath.ToSlash(dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				add(filepath.FromSlash(path))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// archive writes files as one archive, in a folder that is named as the archive.
func (r *release) archive(t target, files []file) error {
	folder := fmt.Sprintf("keygate_%s_%s_%s", r.number(), t.os, t.arch)
	var packed []byte
	var err error
	name := folder + ".tar.gz"
	if t.os == "windows" {
		name = folder + ".zip"
		packed, err = zipped(folder, files, r.time)
	} else {
		packed, err = tarred(folder, files, r.time)
	}
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.out, name), packed)
}

func tarred(folder string, files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: at, Uname: "root", Gname: "root",
		})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func zipped(folder string, files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: folder + "/" + f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
