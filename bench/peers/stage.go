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

// The paths of the origin, which are also Keygate's routes, and the lengths of their
// responses in bytes.
const (
	smallPath, smallBytes = "/small/", 100
	jsonPath, jsonBytes   = "/json/", 381
	largePath, largeBytes = "/large/", 64 << 10
	bulkPath              = "/bulk/"
)

// callers is the number of keys that each proxy knows.
const callers = 100

// stage holds what all runs share: a directory, the origins behind the proxies, and a
// certificate.
type stage struct {
	o           *options
	dir         string
	origin      *process.Process
	plain       string // host:port of the origin with constant responses
	bulk        *bulkOrigin
	calls       callOrigin
	pair        *pair
	files       uint64            // limit of open files of each process
	idle        int               // number of idle connections, which files may limit
	keys        []string          // for the peers other than Keygate
	gatewayDirs map[string]string // by origin, the directory of a Keygate in front of it
	gatewayKeys map[string]string // by origin, a key for that Keygate
}

func openStage(ctx context.Context, o *options) (_ *stage, err error) {
	st := &stage{o: o, gatewayDirs: map[string]string{}, gatewayKeys: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if st.files, err = allowFiles(); err != nil {
		return nil, err
	}
	st.idle = idleWithin(o.idle, st.files)
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

// mostFiles is a limit of open files that suffices for every scenario.
const mostFiles = 1 << 16

// allowFiles raises the limit of open files, of this process and of the processes that it starts,
// to what the scenarios need, or as far as the system allows.
func allowFiles() (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if wish := (syscall.Rlimit{Cur: mostFiles, Max: max(mostFiles, limit.Max)}); limit.Max < mostFiles && syscall.Setrlimit(syscall.RLIMIT_NOFILE, &wish) == nil {
		return mostFiles, nil
	}
	limit.Cur = min(limit.Cur, mostFiles)
	return limit.Cur, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// openOrigin starts the nginx behind the proxies.
func (st *stage) openOrigin(ctx context.Context) error {
	addresses, err := keygate.FreeAddresses(1)
	if err != nil {
		return err
	}
	st.plain = addresses[0]
	if err := os.WriteFile(filepath.Join(st.dir, "large.json"), []byte(jsonText(largeBytes)), 0o600); err != nil {
		return err
	}
	path, err := st.write("origin.conf", map[string]any{
		"Root": os.Getuid() == 0, "Dir": st.dir, "Files": st.files, "Address": st.plain, "Small": jsonText(smallBytes), "JSON": jsonText(jsonBytes),
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

// jsonText returns a JSON text of n bytes.
func jsonText(n int) string {
	const begin, end = `{"id": 42, "text": "`, `"}`
	return begin + strings.Repeat("abcdefghij", n/10+1)[:n-len(begin)-len(end)] + end
}

// write executes one of the templates in conf with data, writes it to a file and
// returns the path.
func (st *stage) write(name string, data any) (string, error) {
	t, err := template.ParseFS(conf, "conf/"+name)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := t.Option("missingkey=error").Execute(&b, data); err != nil {
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
	st.calls.close()
	if st.dir == "" {
		return nil
	}
	return os.RemoveAll(st.dir)
}
