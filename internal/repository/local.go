package repository

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// local is a repository in a directory of this machine.
type local struct{ storage *filesystem.Storage }

// openLocal opens the repository in at.dir: a bare repository, or a directory with a directory .git.
func openLocal(at *location) (tree, error) {
	dir := at.dir
	if info, err := os.Lstat(filepath.Join(dir, ".git")); err == nil && info.IsDir() {
		dir = filepath.Join(dir, ".git")
	}
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
		return nil, &Error{Kind: NoRepository, Message: "the directory of the URL is no Git repository: it has no file HEAD", Err: err}
	}
	// Nothing outside of dir is read: symbolic links and alternates that lead out of it have no content.
	storage := filesystem.NewStorageWithOptions(osfs.New(dir, osfs.WithBoundOS()), cache.NewObjectLRU(16*cache.MiByte), filesystem.Options{LargeObjectThreshold: MaxFile})
	return &local{storage}, nil
}

func (l *local) hostKey() string { return "" }

func (l *local) close() {}

// head implements tree.
func (l *local) head(_ context.Context, branch string) (string, error) {
	ref, err := l.storage.Reference(plumbing.NewBranchReferenceName(branch))
	switch {
	case errors.Is(err, plumbing.ErrReferenceNotFound):
		return "", problem(NoBranch, "the repository has no branch %s: check its name, and that something was pushed to it", printable(branch, maxBranch))
	case err != nil:
		return "", localError(err)
	case ref.Type() != plumbing.HashReference:
		return "", problem(Unsupported, "the branch is a symbolic reference, which is not followed: name the branch that it stands for")
	}
	return ref.Hash().String(), nil
}

// object implements tree.
func (l *local) object(ctx context.Context, kind objectType, id, _ string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	hash := plumbing.NewHash(id)
	size, err := l.storage.EncodedObjectSize(hash)
	if err != nil {
		return nil, localError(err)
	}
	if size > maxObject || kind == plumbing.BlobObject && size > MaxFile {
		return nil, errLarge
	}
	o, err := l.storage.EncodedObject(kind, hash)
	if err != nil {
		return nil, localError(err)
	}
	r, err := o.Reader()
	if err != nil {
		return nil, localError(err)
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(whileReading{ctx, r}, maxObject+1))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, localError(err)
	}
	return content, nil
}

// whileReading is a reader that fails when its context has ended.
type whileReading struct {
	ctx  context.Context
	from io.Reader
}

func (w whileReading) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, w.ctx.Err()
	}
	return w.from.Read(p)
}

// maxLocal is how many calls read directories at once, including calls that have been given up.
const maxLocal = 8

// within calls f, which reads the source. It waits no longer than ctx for a file system. After an
// error of ctx, f may still run, and what it sets must not be read.
func (c *Client) within(ctx context.Context, s *Source, f func() error) error {
	if at, err := parseURL(s.URL); err != nil || at.scheme != "file" {
		return f()
	}
	select {
	case c.local <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-c.local }()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// localError is the error of a repository that cannot be read.
func localError(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return &Error{Kind: Unauthorized, Message: "the server may not read the directory of the repository", Err: err}
	}
	return &Error{Kind: Malformed, Message: "the repository is damaged, or in a format that is not supported", Err: fmt.Errorf("read a repository: %w", err)}
}
