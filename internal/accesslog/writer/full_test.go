//go:build linux

package writer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// Guarantee: a file on a full disk keeps only whole lines. The lines that it cannot take are
// counted as lost, and it grows again once there is room.
func TestFullFile(t *testing.T) {
	if !proctest.Alone(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "access.log")
	w := newWriter(t, Config{Path: path})
	release := proctest.LimitFileSize(t, 1000)
	w.Take(numbered(0, 10))
	w.flush()
	w.Take(numbered(10, 10))
	w.flush()
	release()
	w.Take(numbered(20, 1))
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("got the line %s, want only whole lines", line)
		}
	}
	if last := lines[len(lines)-1]; len(lines) < 2 || !strings.Contains(last, `"/20"`) || w.Lost() != uint64(21-len(lines)) {
		t.Errorf("got %d lines, the last one %s, and %d lost; want the last line of 21, and all others counted", len(lines), last, w.Lost())
	}
}
