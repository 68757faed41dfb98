// Package tlspumptest writes and reads records of TLS 1.3, for tests whose clients do something
// that crypto/tls does not, such as sending a KeyUpdate.
package tlspumptest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Test is the part of testing.TB that this package needs.
type Test interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Types of records.
const (
	Handshake byte = 22
	Data      byte = 23
)

// Labels of the secrets of the two directions in a Keys.
const (
	FromClient = "CLIENT_TRAFFIC_SECRET_0"
	FromServer = "SERVER_TRAFFIC_SECRET_0"
)

// KeyUpdate is a KeyUpdate message that requests one in return, and KeyReply is a KeyUpdate message that does not.
const (
	KeyUpdate = "\x18\x00\x00\x01\x01"
	KeyReply  = "\x18\x00\x00\x01\x00"
)

// headerLen is the length of a record's header, in bytes.
const headerLen = 5

// Keys is a tls.Config.KeyLogWriter.
type Keys struct {
	mu  sync.Mutex
	log bytes.Buffer
}

// Write implements io.Writer.
func (k *Keys) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.Write(p)
}

// Layer returns one direction of the connection whose keys k has. No record must have been sent in
// that direction since the handshake.
func (k *Keys) Layer(t Test, label string) *Layer {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for line := range strings.Lines(k.log.String()) {
		if fields := strings.Fields(line); fields[0] == label {
			secret, err := hex.DecodeString(fields[2])
			if err != nil {
				t.Fatal(err)
			}
			l := &Layer{t: t}
			l.use(secret)
			return l
		}
	}
	t.Fatalf("the key log has no %s", label)
	return nil
}

// Layer is one direction of the record layer of TLS 1.3 with AES-128-GCM.
type Layer struct {
	t      Test
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

func (l *Layer) expand(secret []byte, label string, length int) []byte {
	label = "tls13 " + label
	info := string([]byte{0, byte(length), byte(len(label))}) + label + "\x00"
	out, err := hkdf.Expand(sha256.New, secret, info, length)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

func (l *Layer) use(secret []byte) {
	block, err := aes.NewCipher(l.expand(secret, "key", 16))
	if err != nil {
		l.t.Fatal(err)
	}
	if l.aead, err = cipher.NewGCM(block); err != nil {
		l.t.Fatal(err)
	}
	l.secret, l.iv, l.seq = secret, l.expand(secret, "iv", 12), 0
}

// Update changes to the next key.
func (l *Layer) Update() { l.use(l.expand(l.secret, "traffic upd", sha256.Size)) }

func (l *Layer) nonce() []byte {
	nonce := append([]byte(nil), l.iv...)
	last := binary.BigEndian.Uint64(nonce[4:]) ^ l.seq
	binary.BigEndian.PutUint64(nonce[4:], last)
	l.seq++
	return nonce
}

// Seal returns a record of a type.
func (l *Layer) Seal(kind byte, data string) []byte {
	n := len(data) + 1 + l.aead.Overhead()
	header := []byte{Data, 3, 3, byte(n >> 8), byte(n)}
	return l.aead.Seal(header, l.nonce(), append([]byte(data), kind), header)
}

// Open decrypts a record. It fails the test if the record was changed or is not the next one.
func (l *Layer) Open(r io.Reader) (kind byte, data []byte) {
	l.t.Helper()
	kind, data, err := l.TryOpen(r)
	if err != nil {
		l.t.Fatal(err)
	}
	return kind, data
}

// TryOpen is Open that returns the error.
func (l *Layer) TryOpen(r io.Reader) (kind byte, data []byte, err error) {
	header := make([]byte, headerLen)
	if _, err := io.ReadFull(r, header); err != nil {
		return 0, nil, err
	}
	body := make([]byte, binary.BigEndian.Uint16(header[3:]))
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	data, err = l.aead.Open(nil, l.nonce(), body, header)
	if err != nil {
		return 0, nil, fmt.Errorf("open a record: %w", err)
	}
	return data[len(data)-1], data[:len(data)-1], nil
}
