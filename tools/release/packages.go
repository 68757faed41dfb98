package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk" // the kinds of packages that nfpm.Get returns
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packages writes the packages of a binary for Linux.
func (r *release) packages(t target, binary, pages string) error {
	documents, err := r.documents()
	if err != nil {
		return err
	}
	for _, kind := range []string{"deb", "rpm", "apk"} {
		packager, err := nfpm.Get(kind)
		if err != nil {
			return err
		}
		info := r.packageInfo(kind, t, binary, pages)
		for _, name := range slices.Sorted(maps.Keys(documents)) {
			addFile(info, documents[name], "/usr/share/doc/keygate/"+name, 0o644)
		}
		info = nfpm.WithDefaults(info)
		if kind == "apk" {
			info.Prerelease = r.alpinePrerelease(info.Prerelease)
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

// alpinePrerelease returns a pre-release in a form that the package manager of Alpine knows: rc1 for rc.1, and the time of the
// commit for anything that it has no word for.
func (r *release) alpinePrerelease(s string) string {
	plain := strings.ReplaceAll(s, ".", "")
	if s == "" || regexp.MustCompile(`^(alpha|beta|pre|rc)[0-9]*$`).MatchString(plain) {
		return plain
	}
	return "git" + r.time.Format("20060102150405")
}

// prepare writes files that packages have in another form than the repository to the working directory: the unit of
// systemd with the path of the binary, and the scripts with the time of the commit, which a package of Alpine
// records.
func (r *release) prepare() error {
	text, err := os.ReadFile(filepath.Join(r.root, "deploy", "systemd", "keygate.service"))
	if err != nil {
		return err
	}
	const local = "ExecStart=/usr/local/bin/keygate "
	if n := bytes.Count(text, []byte(local)); n != 1 {
		return fmt.Errorf("deploy/systemd/keygate.service has %d lines with %q, want one", n, local)
	}
	text = bytes.Replace(text, []byte(local), []byte("ExecStart=/usr/bin/keygate "), 1)
	if err := os.WriteFile(r.prepared("keygate.service"), text, 0o600); err != nil { //nolint:gosec // in the temporary directory
		return err
	}
	for _, name := range []string{"preinstall.sh", "postinstall.sh", "preremove.sh", "postremove.sh", "postupgrade.sh"} {
		content, err := os.ReadFile(filepath.Join(r.root, "deploy", "packages", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.prepared(name), content, 0o700); err != nil { //nolint:gosec // a script
			return err
		}
		if err := os.Chtimes(r.prepared(name), r.time, r.time); err != nil {
			return err
		}
	}
	return nil
}

// prepared is the path of a file that prepare writes.
func (r *release) prepared(name string) string { return filepath.Join(r.work, name) }

// addFile adds a file of root to a package.
func addFile(info *nfpm.Info, source, destination string, mode fs.FileMode) *files.Content {
	c := &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: info.MTime}}
	info.Contents = append(info.Contents, c)
	return c
}

// packageInfo returns what a package contains and says, without the documents.
func (r *release) packageInfo(kind string, t target, binary, pages string) *nfpm.Info {
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
		PreInstall: r.prepared("preinstall.sh"), PostInstall: r.prepared("postinstall.sh"),
		PreRemove: r.prepared("preremove.sh"), PostRemove: r.prepared("postremove.sh"),
	}
	add := func(source, destination string, mode fs.FileMode) *files.Content {
		return addFile(info, source, destination, mode)
	}
	add(binary, "/usr/bin/keygate", 0o755)
	settings := add(deploy("packages/keygate.yaml"), "/etc/keygate/keygate.yaml", 0o640)
	settings.Type, settings.FileInfo.Group = files.TypeConfigNoReplace, "keygate"
	data := add("", "/var/lib/keygate", 0o700)
	data.Type, data.FileInfo.Owner, data.FileInfo.Group = files.TypeDir, "keygate", "keygate"
	if kind == "apk" {
		info.APK.Scripts.PostUpgrade = r.prepared("postupgrade.sh")
		add(deploy("packages/keygate.openrc"), "/etc/init.d/keygate", 0o755)
		add(deploy("packages/keygate.logrotate"), "/etc/logrotate.d/keygate", 0o644).Type = files.TypeConfigNoReplace
	} else {
		add(r.prepared("keygate.service"), "/usr/lib/systemd/system/keygate.service", 0o644)
		add(deploy("systemd/keygate.socket"), "/usr/lib/systemd/system/keygate.socket", 0o644)
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
