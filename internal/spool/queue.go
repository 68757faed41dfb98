package spool

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ErrFull is returned by Append if the queue has no room for a frame.
var ErrFull = errors.New("the spool is full")

// The size in bytes at which a segment gets no further frames. A segment takes room until all of it
// is drained.
const (
	minSegment = 64 << 10
	maxSegment = 8 << 20
)

// Config configures a Queue.
type Config struct {
	Dir      string // directory of the segments, which several queues may share; created when it is needed
	Name     string // of the queue, with which the names of its segments begin
	MaxBytes int64  // maximum size of all segments in bytes
}

// Queue is a FIFO queue in files. One process at a time may use it. It is safe for concurrent use, but
// only one goroutine may call Next and Drop.
type Queue struct {
	cfg Config

	mu       sync.Mutex
	segments []segment // oldest first
	bytes    int64     // sum of their sizes
	last     uint64    // number of the newest segment there was
	out      *os.File  // the newest segment while it gets frames, else nil
	dirty    bool      // there are writes since the last Flush
	unnamed  bool      // a power failure may lose the name of the newest segment

	in   *os.File // the oldest segment while it is read, else nil
	at   int64    // offset of the frame that Next returns, in the oldest segment
	next int64    // offset of the frame after it, if Next has returned it; else 0
}

// segment is one file.
type segment struct {
	number uint64
	size   int64 // of the part with frames
}

// Open returns the queue, with what an earlier process has left in it.
func Open(cfg Config) (*Queue, error) {
	q := &Queue{cfg: cfg}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the spool: %w", err)
	}
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), cfg.Name+"-")
		number, err := strconv.ParseUint(text, 16, 64)
		if !ok || err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("read the spool: %w", err)
		}
		q.last = max(q.last, number)
		if info.Size() == 0 { // the process ended before it wrote the first frame
			_ = os.Remove(q.path(number))
			continue
		}
		q.segments = append(q.segments, segment{number, info.Size()})
		q.bytes += info.Size()
	}
	slices.SortFunc(q.segments, func(a, b segment) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	return q, nil
}

func (q *Queue) path(number uint64) string {
	return filepath.Join(q.cfg.Dir, fmt.Sprintf("%s-%016x", q.cfg.Name, number))
}

// Bytes returns the size of the segments in bytes.
func (q *Queue) Bytes() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// Empty reports whether there is no frame.
func (q *Queue) Empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.segments) == 0
}

// Append adds a frame, or returns ErrFull. If the file cannot be written to, the queue stays as it was.
// A frame survives the end of the process when Append returns, and a power failure after Flush.
func (q *Queue) Append(f Frame) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := int64(headSize + len(f.Payload))
	if q.bytes+size > q.cfg.MaxBytes || len(f.Payload) > maxPayload {
		return ErrFull
	}
	if err := q.openOut(); err != nil {
		return fmt.Errorf("write to the spool: %w", err)
	}
	s := &q.segments[len(q.segments)-1]
	if _, err := q.out.WriteAt(appendFrame(make([]byte, 0, size), f), s.size); err != nil {
		if q.out.Truncate(s.size) != nil || s.size == 0 {
			q.giveUpOut()
		}
		return fmt.Errorf("write to the spool: %w", err)
	}
	s.size += size
	q.bytes += size
	q.dirty = true
	if s.size >= min(max(q.cfg.MaxBytes/16, minSegment), maxSegment) {
		_ = q.closeOut() // the frame is in the file, whether that is synced or not
	}
	return nil
}

// openOut opens a segment for further frames.
func (q *Queue) openOut() error {
	if q.out != nil {
		return nil
	}
	f, err := q.create(q.last + 1)
	if err != nil {
		return err
	}
	q.last++
	q.out, q.unnamed = f, true
	q.segments = append(q.segments, segment{number: q.last})
	return nil
}

// createTries is how often a segment is tried to be created while other queues remove the directory.
const createTries = 100

// create creates the file of a segment, and the directory if it does not exist. Another queue may remove the
// directory in between.
func (q *Queue) create(number uint64) (f *os.File, err error) {
	for range createTries {
		if err = os.MkdirAll(q.cfg.Dir, 0o700); errors.Is(err, fs.ErrExist) { // it was there, and is no more
			continue
		}
		if err != nil {
			return nil, err
		}
		if f, err = os.OpenFile(q.path(number), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return f, err
}

// sync makes the newest segment survive a power failure: its content, and its name.
func (q *Queue) sync() error {
	if err := q.out.Sync(); err != nil {
		return err
	}
	if q.unnamed {
		if err := errors.Join(syncDir(q.cfg.Dir), syncDir(filepath.Dir(q.cfg.Dir))); err != nil {
			return err
		}
	}
	q.unnamed = false
	return nil
}

// syncDir makes the entries of a directory survive a power failure. Windows cannot do that.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// giveUpOut stops writing to the newest segment, which may have part of a frame at its end.
func (q *Queue) giveUpOut() {
	_ = q.out.Close()
	q.out = nil
	if last := len(q.segments) - 1; q.segments[last].size == 0 {
		_ = os.Remove(q.path(q.segments[last].number))
		q.segments = q.segments[:last]
	}
}

// closeOut ends the newest segment.
func (q *Queue) closeOut() error {
	err := errors.Join(q.sync(), q.out.Close())
	q.out, q.dirty = nil, false
	if err != nil {
		return fmt.Errorf("write to the spool: %w", err)
	}
	return nil
}

// Flush makes what was appended survive a power failure.
func (q *Queue) Flush() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.dirty || q.out == nil {
		return nil
	}
	if err := q.sync(); err != nil {
		return fmt.Errorf("write to the spool: %w", err)
	}
	q.dirty = false
	return nil
}

// Next returns the oldest frame, or nil if the queue is empty. It returns the same frame until Drop is
// called. A *DamageError says that frames could not be read and were removed: the next call returns
// the frame after them. After another error it may be called again.
func (q *Queue) Next() (*Frame, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.segments) == 0 {
		return nil, nil
	}
	s := q.segments[0]
	if q.in == nil {
		f, err := os.Open(q.path(s.number))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the spool: %w", err)
		}
		if err != nil {
			return nil, q.skip(1, head{})
		}
		q.in = f
	}
	return q.read(s.size)
}

// read reads the frame at q.at, in a segment of the given size.
func (q *Queue) read(size int64) (*Frame, error) {
	if size-q.at < headSize {
		return nil, q.skip(1, head{})
	}
	b := make([]byte, headSize)
	if _, err := q.in.ReadAt(b, q.at); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the spool: %w", err)
	}
	h, ok := readHead(b)
	if !ok {
		return nil, q.skip(1, head{})
	}
	end := q.at + headSize + h.length
	if end > size {
		return nil, q.skip(h.frame.Records, h)
	}
	h.frame.Payload = make([]byte, h.length)
	if _, err := q.in.ReadAt(h.frame.Payload, q.at+headSize); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the spool: %w", err)
	}
	if h.checksum != crc32.Checksum(h.frame.Payload, castagnoli) {
		return nil, q.skip(h.frame.Records, h)
	}
	q.next = end
	return &h.frame, nil
}

// skip removes the oldest segment, and returns the damage for which.
func (q *Queue) skip(records int, h head) *DamageError {
	s := q.segments[0]
	e := &DamageError{Segment: filepath.Base(q.path(s.number)), Skipped: s.size - q.at, Records: records, At: h.frame.At}
	q.remove()
	return e
}

// Drop removes the frame that Next has returned.
func (q *Queue) Drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == 0 {
		return
	}
	q.at, q.next = q.next, 0
	if q.at >= q.segments[0].size {
		q.remove()
	}
}

// remove removes the oldest segment. If its file stays, a later process reads it again, which changes
// nothing.
func (q *Queue) remove() {
	s := q.segments[0]
	if q.in != nil {
		_ = q.in.Close()
	}
	if q.out != nil && len(q.segments) == 1 {
		_ = q.out.Close()
		q.out, q.dirty = nil, false
	}
	q.in, q.at, q.next = nil, 0, 0
	_ = os.Remove(q.path(s.number))
	q.bytes -= s.size
	q.segments = slices.Delete(q.segments, 0, 1)
	if len(q.segments) == 0 {
		_ = os.Remove(q.cfg.Dir) // fails while another queue has segments in it
	}
}

// Close closes the files. What is in the queue stays there.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var err error
	if q.in != nil {
		err = q.in.Close()
		q.in = nil
	}
	if q.out != nil {
		err = errors.Join(err, q.closeOut())
	}
	return err
}
