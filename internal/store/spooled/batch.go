package spooled

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/traffic"
)

// batch is the content of one call of the store, in the form in which the spool keeps it. Its fields
// are stored: they may be added to, but not renamed. Only the fields of its kind are set.
type batch struct {
	ID accesslog.BatchID

	Chunks []audit.Chunk
	Gaps   []byte // audit.Records as JSON; nil if there are none

	Traffic []traffic.Chunk

	Requests []requestlog.Record
	LeftOut  []requestlog.LeftOut

	Events []event.Event
}

// records returns the number of records that are lost if the batch is.
func (b *batch) records() (n int) {
	for i := range b.Chunks {
		n += b.Chunks[i].Records
	}
	for i := range b.Traffic {
		if c := &b.Traffic[i]; c.Part == traffic.Keys { // this part has every request once
			n += int(c.Requests())
		}
	}
	return n + len(b.Requests) + len(b.Events)
}

// write writes the batch to the store.
func (b *batch) write(ctx context.Context, k Kind, to store.Engine) error {
	switch k {
	case Audit:
		var gaps []*audit.Record
		if b.Gaps != nil {
			if err := json.Unmarshal(b.Gaps, &gaps); err != nil {
				return fmt.Errorf("decode gap records: %w", err)
			}
		}
		err := to.AppendAuditChunks(ctx, b.ID, b.Chunks, gaps)
		if fault.CodeOf(err) == fault.NotFound && gaps != nil { // an account that does not exist has no log for a gap record
			err = to.AppendAuditChunks(ctx, b.ID, b.Chunks, nil)
		}
		return err
	case Traffic:
		return to.AppendTraffic(ctx, b.ID, b.Traffic)
	case Requests:
		return to.AppendRequests(ctx, b.ID, b.Requests, b.LeftOut)
	default:
		err := to.AppendEvents(ctx, b.Events)
		if fault.CodeOf(err) == fault.Conflict { // an earlier call did store them
			return nil
		}
		return err
	}
}

// maxBatch bounds the memory for a damaged or malicious frame, in bytes.
const maxBatch = 512 << 20

// codec encodes batches. It is safe for concurrent use.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() (*codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(512<<10))
	if err != nil {
		return nil, fmt.Errorf("create the encoder of the spool: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBatch), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("create the decoder of the spool: %w", err)
	}
	return &codec{enc, dec}, nil
}

func (c *codec) encode(b *batch) ([]byte, error) {
	var plain bytes.Buffer
	if err := gob.NewEncoder(&plain).Encode(b); err != nil {
		return nil, fmt.Errorf("encode a batch for the spool: %w", err)
	}
	return c.enc.EncodeAll(plain.Bytes(), nil), nil
}

func (c *codec) decode(payload []byte) (*batch, error) {
	plain, err := c.dec.DecodeAll(payload, nil)
	if err != nil {
		return nil, fmt.Errorf("decode a batch of the spool: %w", err)
	}
	b := new(batch)
	if err := gob.NewDecoder(bytes.NewReader(plain)).Decode(b); err != nil {
		return nil, fmt.Errorf("decode a batch of the spool: %w", err)
	}
	return b, nil
}
