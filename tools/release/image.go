package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// maxImageConfig bounds the files of an archive that are read for the labels of an image, in bytes.
const maxImageConfig = 1 << 20

// imageLabel is a label in the configuration of an image.
var imageLabel = regexp.MustCompile(`"org\.opencontainers\.image\.(version|revision)":"([^"]*)"`)

// images returns the files, among some, that are archives of the image that "make image" wrote for this version.
// They may exist before the release is made, and its checksums cover them.
func (r *release) images(names []string) []string {
	var found []string
	for _, kind := range []string{"amd64", "arm64", "oci"} {
		if name := fmt.Sprintf("keygate_%s_image_%s.tar", r.number(), kind); slices.Contains(names, name) {
			found = append(found, name)
		}
	}
	return found
}

// checkImage returns an error unless the images in an archive say that they are of this version and commit.
func (r *release) checkImage(name string) (err error) {
	path := filepath.Join(r.out, name)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	labels := map[string]int{}
	for archive := tar.NewReader(f); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s is damaged: make the image again: %w", path, err)
		}
		if h.Size > maxImageConfig {
			continue // a layer
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return fmt.Errorf("%s is damaged: make the image again: %w", path, err)
		}
		for _, label := range imageLabel.FindAllSubmatch(content, -1) {
			key, value := string(label[1]), string(label[2])
			if want := map[string]string{"version": r.version, "revision": r.commit}[key]; value != want {
				return fmt.Errorf("%s has an image of the %s %s, and the release is of %s: make the image again, or remove it", path, key, value, want)
			}
			labels[key]++
		}
	}
	if labels["version"] == 0 || labels["revision"] == 0 {
		return fmt.Errorf("%s has no image that says its version and commit: make the image again, or remove it", path)
	}
	return nil
}
