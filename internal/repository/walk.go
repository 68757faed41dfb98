package repository

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// lfsMark is the beginning of a pointer of Git LFS, which stands in the place of a large file.
const lfsMark = "version https://git-lfs.github.com/spec/"

// readFile returns the file at a path of a commit.
func readFile(ctx context.Context, t tree, commit, name string) (*File, error) {
	c, err := decode(ctx, t, plumbing.CommitObject, commit, commit, new(object.Commit))
	if err != nil {
		return nil, err
	}
	text := func(s string, n int) string { return printable(commitText(s, string(c.Encoding)), n) }
	message, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	author := text(c.Author.Name, 120)
	if c.Author.Email != "" {
		author = strings.TrimSpace(author + " <" + text(c.Author.Email, 120) + ">")
	}
	f := &File{Commit: commit, Author: author, Message: text(message, 254), Time: c.Committer.When.UTC()}
	id := c.TreeHash.String()
	parts := strings.Split(name, "/")
	for i, part := range parts {
		dir, err := decode(ctx, t, plumbing.TreeObject, id, commit, new(object.Tree))
		if err != nil {
			return nil, err
		}
		last := i == len(parts)-1
		entry := find(dir, part)
		at := printable(path.Join(parts[:i+1]...), maxPath)
		switch {
		case entry == nil:
			return nil, problem(NoFile, "commit %s has no file %s: there is no %s", commit[:12], printable(name, maxPath), at)
		case entry.Mode == filemode.Symlink:
			return nil, problem(BadFile, "%s is a symbolic link, which is not followed: name the file itself", at)
		case entry.Mode == filemode.Submodule:
			return nil, problem(BadFile, "%s is a submodule, which is not read: connect its own repository", at)
		case entry.Mode == filemode.Dir && last:
			return nil, problem(BadFile, "%s is a directory: name one file", at)
		case entry.Mode != filemode.Dir && !last:
			return nil, problem(NoFile, "commit %s has no file %s: %s is no directory", commit[:12], printable(name, maxPath), at)
		}
		id = entry.Hash.String()
	}
	if f.Content, err = t.object(ctx, plumbing.BlobObject, id, commit); err != nil {
		return nil, err
	}
	if err := checkID(plumbing.BlobObject, f.Content, id); err != nil {
		return nil, err
	}
	switch {
	case len(f.Content) > MaxFile:
		return nil, errLarge
	case bytes.HasPrefix(f.Content, []byte(lfsMark)):
		return nil, problem(BadFile, "%s is stored with Git LFS, and the repository has only a pointer to it: commit the file itself (git lfs untrack)", printable(name, maxPath))
	}
	return f, nil
}

// find returns the entry of a directory with a name, or nil.
func find(dir *object.Tree, name string) *object.TreeEntry {
	for i := range dir.Entries {
		if dir.Entries[i].Name == name {
			return &dir.Entries[i]
		}
	}
	return nil
}

// checkID checks that an object has the given identifier.
func checkID(kind objectType, content []byte, id string) error {
	if plumbing.ComputeHash(kind, content).String() != id {
		return errPack(fmt.Errorf("the %s is not %s", kind, id))
	}
	return nil
}

// decode reads an object and decodes it into v.
func decode[T interface {
	Decode(o plumbing.EncodedObject) error
}](ctx context.Context, t tree, kind objectType, id, commit string, v T) (T, error) {
	content, err := t.object(ctx, kind, id, commit)
	if err != nil {
		return v, err
	}
	if err := checkID(kind, content, id); err != nil {
		return v, err
	}
	o := &plumbing.MemoryObject{}
	o.SetType(kind)
	if _, err := o.Write(content); err != nil {
		return v, err
	}
	o.SetSize(int64(len(content)))
	if err := v.Decode(o); err != nil {
		return v, errPack(err)
	}
	return v, nil
}
