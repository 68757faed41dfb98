package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk" // the kinds of packages that nfpm.Get returns
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packages writes the packages of a binary for Linux.
func (r *release) packages(t target, binary, pages string) error {
	unit, err := r.unit(t)
	if err != nil {
		return err
	}
	scripts, err := r.scripts(t)
	if err != nil {
		return err
	}
	for _, kind := range []string{"deb", "rpm", "apk"} {
		packager, err := nfpm.Get(kind)
		if err != nil {
			return err
		}
		info := nfpm.WithDefaults(r.packageInfo(kind, t, binary, pages, unit, scripts))
		if kind == "apk" { // the package manager of Alpine knows rc1, and not rc.1
			info.Prerelease = strings.ReplaceAll(info.Prerelease, ".", "")
		}
		if err := nfpm.PrepareForPackager(info, kind); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		var b bytes.Buffer
		if err := packager.Package(info, &b); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if err := writeFile(filepath.Join(r.out, packager.ConventionalFileName(info)), b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// unit writes the unit of systemd with the path that the binary has in a package, and returns its own path.
func (r *release) unit(t target) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "deploy", "systemd", "keygate.service"))
	if err != nil {
		return "", err
	}
	const local = "ExecStart=/usr/local/bin/keygate "
	if n := strings.Count(string(text), local); n != 1 {
		return "", fmt.Errorf("deploy/systemd/keygate.service has %d lines with %q, want one", n, local)
	}
	path := filepath.Join(r.work, t.os+"-"+t.arch, "keygate.service")
	text = bytes.Replace(text, []byte(local), []byte("ExecStart=/usr/bin/keygate "), 1)
	return path, os.WriteFile(path, text, 0o600) //nolint:gosec // in the temporary directory
}

// scripts copies the scripts of the packages, and returns the directory that has them. A package of Alpine records
// the time of a script's file, which is that of the commit in the copy.
func (r *release) scripts(t target) (string, error) {
	dir := filepath.Join(r.work, t.os+"-"+t.arch, "scripts")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	for _, name := range []string{"preinstall.sh", "postinstall.sh", "preremove.sh", "postremove.sh", "postupgrade.sh"} {
		content, err := os.ReadFile(filepath.Join(r.root, "deploy", "packages", name))
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o700); err != nil { //nolint:gosec // a script
			return "", err
		}
		if err := os.Chtimes(path, r.time, r.time); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// packageInfo returns what a package contains and says.
func (r *release) packageInfo(kind string, t target, binary, pages, unit, scripts string) *nfpm.Info {
	deploy := func(name string) string { return filepath.Join(r.root, "deploy", name) }
	info := &nfpm.Info{
		Name: "keygate", Platform: t.os, Arch: t.arch, Version: r.version, VersionSchema: "semver", Release: "1", MTime: r.time,
		Section: "net", Priority: "optional", Maintainer: "The authors of Keygate", License: "Apache-2.0", Homepage: "https://github.com/keygate/keygate",
		Description:     "API gateway with keys, rate limits, webhooks and an audit log\nKeygate puts API keys, exact rate limits, signed webhooks and an audit log in front\nof an HTTP service. It needs no database server.",
		DisableGlobbing: true,
	}
	// The names of packages that create users, where it is not always there.
	switch kind {
	case "deb":
		info.Deb.Predepends = []string{"passwd"}
	case "rpm":
		info.Depends = []string{"shadow-utils"}
		info.RPM.Summary, info.RPM.BuildHost, info.RPM.Group = "API gateway with keys, rate limits, webhooks and an audit log", "localhost", "System Environment/Daemons"
	}
	info.Scripts = nfpm.Scripts{
		PreInstall: filepath.Join(scripts, "preinstall.sh"), PostInstall: filepath.Join(scripts, "postinstall.sh"),
		PreRemove: filepath.Join(scripts, "preremove.sh"), PostRemove: filepath.Join(scripts, "postremove.sh"),
	}
	add := func(source, destination string, mode fs.FileMode) *files.Content {
		c := &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.time}}
		info.Contents = append(info.Contents, c)
		return c
	}
	add(binary, "/usr/bin/keygate", 0o755)
	settings := add(deploy("packages/keygate.yaml"), "/etc/keygate/keygate.yaml", 0o640)
	settings.Type, settings.FileInfo.Group = files.TypeConfigNoReplace, "keygate"
	data := add("", "/var/lib/keygate", 0o700)
	data.Type, data.FileInfo.Owner, data.FileInfo.Group = files.TypeDir, "keygate", "keygate"
	if kind == "apk" {
		info.APK.Scripts.PostUpgrade = filepath.Join(scripts, "postupgrade.sh")
		add(deploy("packages/keygate.openrc"), "/etc/init.d/keygate", 0o755)
	} else {
		add(unit, "/usr/lib/systemd/system/keygate.service", 0o644)
		add(deploy("systemd/keygate.socket"), "/usr/lib/systemd/system/keygate.socket", 0o644)
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		add(filepath.Join(r.root, name), "/usr/share/doc/keygate/"+name, 0o644)
	}
	completions := filepath.Join(pages, "completions")
	add(filepath.Join(completions, "keygate.bash"), "/usr/share/bash-completion/completions/keygate", 0o644)
	add(filepath.Join(completions, "_keygate"), "/usr/share/zsh/site-functions/_keygate", 0o644)
	add(filepath.Join(completions, "keygate.fish"), "/usr/share/fish/vendor_completions.d/keygate.fish", 0o644)
	manual, _ := filepath.Glob(filepath.Join(pages, "man1", "*.1")) // an error only of the pattern
	for _, page := range manual {
		add(page, "/usr/share/man/man1/"+filepath.Base(page), 0o644)
	}
	return info
}
