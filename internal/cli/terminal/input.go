package terminal

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// maxInput is how many bytes are read from a file or standard input. The server accepts at
// most 16 MiB.
const maxInput = 64 << 20

// ReadInput reads a file, or standard input for "-".
func (c *Console) ReadInput(name string) ([]byte, error) {
	if name == "-" {
		return readBounded("standard input", c.In)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return readBounded(name, f)
}

func readBounded(name string, from io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(content) > maxInput:
		return nil, fmt.Errorf("%s has more than %d MiB, and the server takes at most 16 MiB: split it, or check that it is the right file", name, maxInput>>20)
	}
	return content, nil
}

// ReadLine reads one line from standard input. If that is a terminal, it prints the
// prompt and turns off echo.
func (c *Console) ReadLine(prompt string) (string, error) {
	fd, ok := IsTerminal(c.In)
	if !ok {
		return bufio.NewReader(io.LimitReader(c.In, 4096)).ReadString('\n')
	}
	fmt.Fprint(c.Err, prompt)
	line, err := term.ReadPassword(fd)
	fmt.Fprintln(c.Err)
	return string(line), err
}
