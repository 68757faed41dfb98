//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/process"
)

//go:embed conf
var conf embed.FS

// The paths of the origin, which are routes of Keygate's, and how long their
// answers are, in bytes.
const (
	smallPath, smallBytes = "/small/", 100
	jsonPath, jsonBytes   = "/json/", 381
	largePath, largeBytes = "/large/", 64 << 10
	bulkPath              = "/bulk/"
)

// callers is how many keys each proxy that checks them knows.
const callers = 100

// stage is what all runs share: a directory, a service that the proxies stand
// in front of, and a certificate.
type stage struct {
	o      *options
	dir    string
	origin *process.Process
	plain  string // host:port of the origin of constant answers
	bulk   *bulkOrigin
	pair   *pair
	files  uint64            // descriptors that a process may have
	keys   []string          // for the peers that do not make their own
	gates  map[string]string // the directory of a Keygate in front of an origin
	secret map[string]string // its key
}

func openStage(ctx context.Context, o *options) (_ *stage, err error) {
	st := &stage{o: o, gates: map[string]string{}, secret: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if st.files, err = allowFiles(); err != nil {
		return nil, err
	}
	if st.dir, err = os.MkdirTemp("", "keygate-bench-peers-"); err != nil {
		return nil, err
	}
	if st.pair, err = newPair(st.dir); err != nil {
		return nil, err
	}
	var keyMap strings.Builder
	for i := range callers {
		key := "kg_" + (rand.Text() + rand.Text())[:36]
		st.keys = append(st.keys, key)
		fmt.Fprintf(&keyMap, "%s key%d\n", key, i)
	}
	if err := os.WriteFile(filepath.Join(st.dir, "keys.map"), []byte(keyMap.String()), 0o600); err != nil {
		return nil, err
	}
	if st.bulk, err = newBulkOrigin(st.dir, o.bytes); err != nil {
		return nil, err
	}
	return st, st.openOrigin(ctx)
}

// mostFiles is how many descriptors are enough for every scenario.
const mostFiles = 1 << 16

// allowFiles lets this process and those that it starts have as many
// descriptors as the scenarios need, or as the system lets them have.
func allowFiles() (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of descriptors: %w", err)
	}
	limit.Cur = limit.Max
	if wish := (syscall.Rlimit{Cur: mostFiles, Max: max(mostFiles, limit.Max)}); limit.Max < mostFiles && syscall.Setrlimit(syscall.RLIMIT_NOFILE, &wish) == nil {
		return mostFiles, nil
	}
	limit.Cur = min(limit.Cur, mostFiles)
	return limit.Cur, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// openOrigin starts the nginx that answers behind the proxies.
func (st *stage) openOrigin(ctx context.Context) error {
	addresses, err := keygate.FreeAddresses(1)
	if err != nil {
		return err
	}
	st.plain = addresses[0]
	if err := os.WriteFile(filepath.Join(st.dir, "large.json"), []byte(answer(largeBytes)), 0o600); err != nil {
		return err
	}
	path, err := st.write("origin.conf", map[string]any{
		"Root": os.Getuid() == 0, "Dir": st.dir, "Files": st.files, "Address": st.plain, "Small": answer(smallBytes), "JSON": answer(jsonBytes),
	})
	if err != nil {
		return err
	}
	program, err := find("nginx")
	if err != nil {
		return err
	}
	if st.origin, err = process.Start(process.Config{Path: program, Args: []string{"-c", path, "-e", "stderr"}, Dir: st.dir}); err != nil {
		return err
	}
	return st.origin.Await(ctx, func(ctx context.Context) error {
		return check(ctx, http.DefaultClient, "http://"+st.plain, "", false)
	})
}

// answer returns a JSON text of n bytes.
func answer(n int) string {
	const begin, end = `{"id": 42, "text": "`, `"}`
	return begin + strings.Repeat("abcdefghij", n/10+1)[:n-len(begin)-len(end)] + end
}

// write writes one of the files of conf with its blanks filled in, and returns
// its path.
func (st *stage) write(name string, blanks any) (string, error) {
	t, err := template.ParseFS(conf, "conf/"+name)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := t.Option("missingkey=error").Execute(&b, blanks); err != nil {
		return "", err
	}
	path := filepath.Join(st.dir, name)
	return path, os.WriteFile(path, b.Bytes(), 0o600)
}

func (st *stage) close() error {
	if st.origin != nil {
		st.origin.Stop()
	}
	if st.bulk != nil {
		st.bulk.close()
	}
	if st.dir == "" {
		return nil
	}
	return os.RemoveAll(st.dir)
}
