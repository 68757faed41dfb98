// Package writer writes the access log (--access-log): a line of JSON for each request of
// the data plane, to a file that is rotated by size or to standard output.
//
// The requests never wait for the output. Lines wait in memory, which is bounded; if the
// output does not accept them in time, they are lost and counted.
package writer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/service"
)

// The defaults of Config.
const (
	DefaultMaxSize = 100_000_000
	DefaultKeep    = 5
	DefaultMaxHeld = 16 << 20

	keptBuffer   = 1 << 20 // bytes of a buffer that is kept for the next lines
	reportPeriod = time.Second
	stopTime     = 2 * time.Second
)

// Config configures a Writer. A zero field means its default.
type Config struct {
	// Path is the file to append to. It is created with mode 0600. Its directory must exist.
	// Path or Stdout is required.
	Path string
	// Stdout is where the lines go if Path is "".
	Stdout io.Writer
	// MaxSize is the size in bytes at which the file is rotated.
	MaxSize int64
	// Keep is the number of rotated files that are kept.
	Keep int
	// MaxHeld bounds the bytes of the lines that wait to be written.
	MaxHeld int
	// Log receives a line when lines of the access log begin to be lost, and another when this has
	// ended. Nil discards them.
	Log *slog.Logger
}

// Writer is an accesslog.Sink. It is safe for concurrent use.
type Writer struct {
	cfg    Config
	out    io.WriteCloser
	writes chan struct{} // has a buffer of one: there are lines to write

	mu   sync.Mutex // held only briefly, since Take waits for it
	held []byte     // lines that wait

	spare  []byte // for the next held; used only by the goroutine that writes
	lost   atomic.Uint64
	reopen atomic.Bool           // Reopen was called
	failed atomic.Pointer[error] // the last error of the output

	losing   bool   // used only by report, as is reported
	reported uint64 // value of lost at the last report
	group    service.Group
}

var _ accesslog.Sink = (*Writer)(nil)

// New opens the output. The error says why it cannot be written to.
func New(cfg Config) (*Writer, error) {
	if cfg.MaxSize == 0 {
		cfg.MaxSize = DefaultMaxSize
	}
	if cfg.Keep == 0 {
		cfg.Keep = DefaultKeep
	}
	if cfg.MaxHeld == 0 {
		cfg.MaxHeld = DefaultMaxHeld
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	w := &Writer{cfg: cfg, writes: make(chan struct{}, 1)}
	if cfg.Path == "" {
		if cfg.Stdout == nil {
			return nil, fmt.Errorf("accesslog/writer: Config.Path or Config.Stdout is required")
		}
		w.out = &stream{to: cfg.Stdout}
		return w, nil
	}
	f, err := openFile(cfg.Path, cfg.MaxSize, cfg.Keep)
	if err != nil {
		return nil, err
	}
	w.out = f
	return w, nil
}

// Lost returns the number of lines that were lost because the output did not accept them.
func (w *Writer) Lost() uint64 { return w.lost.Load() }

// Take implements accesslog.Sink. It never waits for the output.
func (w *Writer) Take(batch []accesslog.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range batch {
		e := &batch[i]
		if e.Part == accesslog.Started {
			continue
		}
		if len(w.held) >= w.cfg.MaxHeld {
			w.lost.Add(1)
			continue
		}
		w.held = appendLine(w.held, e)
	}
	if len(w.held) > 0 {
		w.wake()
	}
}

// Reopen opens the file at its path again, soon and without a new line: another program may have moved
// it away. Standard output stays as it is.
func (w *Writer) Reopen() {
	w.reopen.Store(true)
	w.wake()
}

// wake lets the goroutine that writes look for work.
func (w *Writer) wake() {
	select {
	case w.writes <- struct{}{}:
	default:
	}
}

// Start begins to write, until Stop.
func (w *Writer) Start(context.Context) error {
	watch := func(ctx context.Context) { service.Every(ctx, reportPeriod, w.report) }
	if err := w.group.Start(w.run, watch); err != nil {
		return fmt.Errorf("start the access log's writer: %w", err)
	}
	return nil
}

// Stop writes the lines that wait, and closes the file. If the output has not accepted them after
// two seconds, or ctx ends first, they are lost and Stop returns an error.
func (w *Writer) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := w.group.Stop(ctx); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lost.Add(uint64(bytes.Count(w.held, []byte{'\n'})))
		w.held = nil
		return fmt.Errorf("stop the access log's writer: the output does not accept the remaining lines: %w", err)
	}
	w.flush() // if it was never started
	w.report(ctx)
	return w.out.Close()
}

func (w *Writer) run(ctx context.Context) {
	for {
		select {
		case <-w.writes:
			w.flush()
		case <-ctx.Done():
			w.flush()
			return
		}
	}
}

// flush writes the lines that wait. Lines that the output does not accept are lost.
func (w *Writer) flush() {
	if f, ok := w.out.(*file); w.reopen.Swap(false) && ok {
		if err := f.reopen(); err != nil {
			w.cfg.Log.Error("the file of the access log cannot be opened again; the one before stays in use", "error", err)
		}
	}
	w.mu.Lock()
	lines := w.held
	w.held = w.spare[:0]
	w.mu.Unlock()
	if len(lines) > 0 {
		n, err := w.out.Write(lines)
		if err != nil {
			w.failed.Store(&err)
			w.lost.Add(uint64(bytes.Count(lines[n:], []byte{'\n'})))
		}
	}
	if w.spare = nil; cap(lines) <= keptBuffer {
		w.spare = lines[:0]
	}
}

// report logs once that lines are being lost, and once that this has ended.
func (w *Writer) report(context.Context) {
	lost := w.lost.Load()
	switch {
	case lost > w.reported && !w.losing:
		why := "the output accepts them too slowly"
		if err := w.failed.Swap(nil); err != nil {
			why = (*err).Error()
		}
		w.losing = true
		w.cfg.Log.Error("lines of the access log are being lost", "lost", lost, "error", why)
	case lost == w.reported && w.losing:
		w.losing = false
		w.cfg.Log.Warn("the access log is written again", "lost", lost)
	}
	w.reported = lost
}
