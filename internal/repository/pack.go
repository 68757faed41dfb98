package repository

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

type objectType = plumbing.ObjectType

// The bounds of a pack.
const (
	maxObjects  = 500_000
	maxInflated = 2 << 30  // bytes of all objects together, of which nearly all are only counted
	maxBuilt    = 2 << 30  // bytes that are inflated or copied to build objects
	maxSteps    = 1 << 28  // entries that are examined to find objects among deltas, which takes seconds
	maxObject   = 32 << 20 // bytes of an object that is held in memory, or of a delta
	maxChain    = 4096     // deltas on top of each other
	maxBases    = 64 << 20 // bytes of objects that are kept to build others from

	lightObjects  = 16       // in a pack that needs no slot
	lightInflated = 64 << 20 // bytes of all these objects together
)

// pack is a pack on disk. Objects that are stored whole are known by their identifiers. Objects
// that are stored as deltas are built when an object is requested that is not known yet.
type pack struct {
	file    *os.File
	scanner *packfile.Scanner
	entries []packEntry
	known   map[plumbing.Hash]int32 // by identifier, an index of entries
	refs    map[int32]plumbing.Hash // by the index of a delta whose base is not known yet: the base's identifier

	maxObject, maxBuilt int64

	heavy bool           // reading it needs a slot: it is more than a single object that was requested alone
	built int64          // see maxBuilt
	steps int            // see maxSteps
	bases map[int32]body // kept objects that others are built from
	kept  int
}

// packEntry is an object of a pack.
type packEntry struct {
	offset int64
	base   int32 // index of the entry that a delta is based on; noBase if it is not known yet
	kind   objectType
}

const noBase = -1

// body is an object.
type body struct {
	kind    objectType
	content []byte
}

// receivePack writes a pack to a file in dir. Objects of more than maxObject bytes are not built, nor more than
// maxBuilt bytes of objects together. The caller must call index, and close at the end.
func receivePack(dir string, maxObject, maxBuilt int64, from io.Reader) (*pack, error) {
	f, err := os.CreateTemp(dir, packPattern)
	if err != nil {
		return nil, fmt.Errorf("make a file for a pack: %w", err)
	}
	p := &pack{file: f, maxObject: maxObject, maxBuilt: maxBuilt, known: map[plumbing.Hash]int32{}, bases: map[int32]body{}}
	if _, err = io.Copy(f, from); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	p.scanner = packfile.NewScanner(f)
	return p, nil
}

func (p *pack) close() {
	_ = p.file.Close()
	_ = os.Remove(p.file.Name())
}

// index reads the pack once from its beginning to its end. Before it begins reading that may take long, it calls
// slot once and sets heavy.
func (p *pack) index(ctx context.Context, slot func() error) error {
	_, n, err := p.scanner.Header()
	if err != nil {
		return errPack(err)
	}
	if n > maxObjects {
		return problem(TooLarge, "the commit has too many files: at most %d files and directories are read", maxObjects)
	}
	byOffset := map[int64]int32{}
	refs := map[int32]plumbing.Hash{}
	inflated := int64(0)
	for i := range int32(n) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		h, err := p.scanner.NextObjectHeader()
		if err != nil {
			return errPack(err)
		}
		if inflated += h.Length; h.Length < 0 || inflated > maxInflated {
			return problem(TooLarge, "the files of the commit are too large together: at most 2 GiB are read")
		}
		if !p.heavy && (n > lightObjects || inflated > lightInflated || h.Type.IsDelta()) {
			if p.heavy = true; slot() != nil {
				return ctx.Err()
			}
		}
		e := packEntry{offset: h.Offset, base: noBase, kind: h.Type}
		byOffset[h.Offset] = i
		switch h.Type {
		case plumbing.OFSDeltaObject:
			base, ok := byOffset[h.OffsetReference]
			if !ok {
				return errPack(nil)
			}
			e.base = base
		case plumbing.REFDeltaObject:
			refs[i] = h.Reference
		case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
		default:
			return errPack(nil)
		}
		hasher := plumbing.NewHasher(h.Type, h.Length)
		written, _, err := p.scanner.NextObject(whileRunning{ctx, hasher})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || written != h.Length {
			return errPack(err)
		}
		if !h.Type.IsDelta() {
			p.known[hasher.Sum()] = i
		}
		p.entries = append(p.entries, e)
	}
	if _, err := p.scanner.Checksum(); err != nil {
		return errPack(err)
	}
	p.refs = refs
	return nil
}

// object returns an object by its identifier.
func (p *pack) object(ctx context.Context, kind objectType, id string) ([]byte, error) {
	want := plumbing.NewHash(id)
	if _, ok := p.known[want]; !ok {
		if err := p.resolve(ctx, kind, want); err != nil {
			return nil, err
		}
	}
	i, ok := p.known[want]
	if !ok {
		return nil, problem(Malformed, "the server did not send %s %s of the commit, or only in a form that is too large: try again", kind, id)
	}
	b, err := p.build(ctx, i)
	if err != nil {
		return nil, err
	}
	if b.kind != kind {
		return nil, errPack(fmt.Errorf("object %s is a %s, not a %s", id, b.kind, kind))
	}
	return b.content, nil
}

// resolve builds the objects of a kind that are stored as deltas, until it has the wanted object.
// Deltas whose base is itself built in this round take another round.
func (p *pack) resolve(ctx context.Context, kind objectType, want plumbing.Hash) error {
	done := make([]bool, len(p.entries))
	for progress := true; progress; {
		progress = false
		for i := range p.refs {
			if base, ok := p.known[p.refs[i]]; ok {
				p.entries[i].base = base
				delete(p.refs, i)
			}
		}
		for i := range int32(len(p.entries)) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if p.steps++; p.steps > maxSteps {
				return errSearch
			}
			if done[i] || !p.entries[i].kind.IsDelta() || p.kindOf(i) != kind {
				continue
			}
			b, err := p.build(ctx, i)
			if errors.Is(err, errLarge) {
				done[i] = true
				continue
			}
			if err != nil {
				return err
			}
			done[i], progress = true, true
			id := plumbing.ComputeHash(b.kind, b.content)
			p.known[id] = i
			p.keep(i, b)
			if id == want {
				return nil
			}
		}
	}
	return nil
}

// kindOf returns the kind of the object at the end of a chain of deltas, and InvalidObject if that
// is not known yet.
func (p *pack) kindOf(i int32) objectType {
	for range maxChain {
		e := &p.entries[i]
		if !e.kind.IsDelta() {
			return e.kind
		}
		if e.base == noBase {
			return plumbing.InvalidObject
		}
		p.steps++
		i = e.base
	}
	return plumbing.InvalidObject
}

// errLarge is the error of an object that is too large to be held.
var errLarge = &Error{Kind: TooLarge, Message: "the file is too large: at most 16 MiB are read"}

// errSearch is the error of a pack in which an object cannot be found with a bounded effort.
var errSearch = &Error{Kind: TooLarge, Message: "the files of the commit are too large together to find the one that is wanted"}

// spend counts n bytes that are about to be inflated or copied.
func (p *pack) spend(n int64) error {
	if p.built += n; p.built > p.maxBuilt {
		return errSearch
	}
	return nil
}

// build returns an object.
func (p *pack) build(ctx context.Context, i int32) (body, error) {
	var chain []int32
	var b body
	for {
		if kept, ok := p.bases[i]; ok {
			b = kept
			break
		}
		e := &p.entries[i]
		if !e.kind.IsDelta() {
			content, err := p.read(e)
			if err != nil {
				return body{}, err
			}
			b = body{e.kind, content}
			p.keep(i, b)
			break
		}
		if e.base == noBase || len(chain) == maxChain {
			return body{}, errPack(nil)
		}
		chain = append(chain, i)
		i = e.base
	}
	for _, at := range slices.Backward(chain) {
		if ctx.Err() != nil {
			return body{}, ctx.Err()
		}
		delta, err := p.read(&p.entries[at])
		if err != nil {
			return body{}, err
		}
		size, ok := targetSize(delta)
		if !ok || size > uint64(p.maxObject) {
			return body{}, errLarge
		}
		if err := p.spend(int64(size)); err != nil {
			return body{}, err
		}
		content, err := packfile.PatchDelta(b.content, delta)
		if err != nil {
			return body{}, errPack(err)
		}
		b = body{b.kind, content}
	}
	return b, nil
}

// keep keeps an object to build others from. When there are too many, all are dropped.
func (p *pack) keep(i int32, b body) {
	if _, ok := p.bases[i]; ok || len(b.content) > maxBases/4 {
		return
	}
	if p.kept+len(b.content) > maxBases {
		clear(p.bases)
		p.kept = 0
	}
	p.bases[i] = b
	p.kept += len(b.content)
}

// read returns the content of an entry: an object, or a delta.
func (p *pack) read(e *packEntry) ([]byte, error) {
	h, err := p.scanner.SeekObjectHeader(e.offset)
	if err != nil {
		return nil, errPack(err)
	}
	if h.Length > p.maxObject {
		return nil, errLarge
	}
	if err := p.spend(h.Length); err != nil {
		return nil, err
	}
	content := bytes.NewBuffer(make([]byte, 0, h.Length))
	if _, _, err := p.scanner.NextObject(content); err != nil || int64(content.Len()) != h.Length {
		return nil, errPack(err)
	}
	return content.Bytes(), nil
}

// targetSize returns the size of the object that a delta makes (gitformat-pack(5)).
func targetSize(delta []byte) (size uint64, ok bool) {
	_, n := binary.Uvarint(delta)
	if n <= 0 {
		return 0, false
	}
	size, m := binary.Uvarint(delta[n:])
	return size, m > 0
}

// whileRunning is a writer that fails when its context has ended.
type whileRunning struct {
	ctx context.Context
	to  io.Writer
}

func (w whileRunning) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, w.ctx.Err()
	}
	return w.to.Write(p)
}

// errPack is the error of a pack that is damaged.
func errPack(err error) error {
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	return &Error{Kind: Malformed, Message: "the server sent a damaged pack: try again", Err: err}
}
