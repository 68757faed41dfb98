package telemetry_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/telemetry"
)

// A limited is a writer that takes room bytes, and then returns errors, as a full disk does.
type limited struct {
	bytes.Buffer

	room int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.room)
	l.room -= n
	l.Buffer.Write(p[:n])
	if n < len(p) {
		return n, errors.New("full")
	}
	return n, nil
}

// Guarantee: contract, section 1. A log line that cannot be written is dropped and counted. A line that
// was written in part does not spoil the next.
func TestLineThatCannotBeWrittenIsLost(t *testing.T) {
	to := &limited{room: 10}
	o := telemetry.NewOutput(to)
	for _, line := range []string{"first\n", "second\n", "third\n"} {
		if n, err := o.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("write %q: got %d, %v; want it to be taken", line, n, err)
		}
	}
	to.room = 100
	_, _ = o.Write([]byte("fourth\n"))
	if got, want := to.String(), "first\nseco\nfourth\n"; got != want || o.Lost() != 2 {
		t.Errorf("got %q with %d lines lost, want %q with 2", got, o.Lost(), want)
	}
}

// Guarantee: work waits for the reader of the log for a moment at most, and only once. Then lines
// are lost and counted until it reads again.
func TestLogWithoutReaderDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		o := telemetry.NewOutput(writer)
		log := slog.New(slog.NewTextHandler(o, nil))
		for range 1000 { // synctest ends the test if one of them waits for ever
			log.Info("to nobody")
		}
		if got := o.Lost(); got != 999 {
			t.Errorf("got %d lines lost, want all but the one that waits", got)
		}
		lines := bufio.NewScanner(reader)
		lines.Scan()
		synctest.Wait()
		go log.Info("read again")
		if !lines.Scan() || !bytes.Contains(lines.Bytes(), []byte("read again")) {
			t.Errorf("got the line %q, want the one that was written after the reader came back", lines.Text())
		}
		synctest.Wait()
		if got := o.Lost(); got != 999 {
			t.Errorf("got %d lines lost, want no further one", got)
		}
	})
}

// Guarantee: docs/limits.md. A log line has at most 16 KiB of a text, such as the error that a server has answered with: the
// rest is left out, and the line says how much. No secret part of a key is left where it is cut.
func TestLongTextsOfTheLogAreCut(t *testing.T) {
	const most = 16 << 10
	key, err := apikey.Generate(apikey.GatewayLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"json", "text"} {
		var to bytes.Buffer
		log := telemetry.NewLogger(&to, "info", format)
		log.Info("m", "short", strings.Repeat("s", most), "error", errors.New(strings.Repeat("é", most)+"END"), "key", strings.Repeat("k", most-10)+key+"END")
		line := to.String()
		if len(line) > 4*most || strings.Contains(line, "END") || strings.Contains(line, key[:12]) {
			t.Errorf("%s: a line of %d bytes, want texts to be cut: …%.300s", format, len(line), line[max(0, len(line)-300):])
		}
		if !strings.Contains(line, "s") || !strings.Contains(line, fmt.Sprintf("(%d bytes more)", most+3)) || strings.Contains(line, "\ufffd") {
			t.Errorf("%s: got …%.300s, want what was left out of the error", format, line[max(0, len(line)-300):])
		}
	}
}
