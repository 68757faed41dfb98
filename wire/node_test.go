package wire

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
)

// node is a process that parses requests with Node's HTTP parser.
type node struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// nodeReading is what Node reads from a stream of bytes.
type nodeReading struct {
	Messages []nodeMessage `json:"messages"`
	Error    string        `json:"error"`
}

type nodeMessage struct {
	Method   string   `json:"method"`
	Target   string   `json:"target"`
	Head     []string `json:"head"` // alternately names and values
	Body     []byte   `json:"body"`
	Trailers []string `json:"trailers"`
}

func startNode(t testing.TB) *node {
	t.Helper()
	cmd := exec.Command("node", "testdata/node.js")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start Node.js, which make deps installs: %v", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("node: %v", err)
		}
	})
	return &node{in, bufio.NewReader(out)}
}

// read makes Node parse a stream of bytes.
func (n *node) read(t testing.TB, input []byte) (out nodeReading) {
	t.Helper()
	if _, err := io.WriteString(n.in, base64.StdEncoding.EncodeToString(input)+"\n"); err != nil {
		t.Fatal(err)
	}
	line, err := n.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("node: got output %q: %v", line, err)
	}
	if err := json.Unmarshal(line, &out); err != nil {
		t.Fatalf("node: got output %q: %v", line, err)
	}
	return out
}
