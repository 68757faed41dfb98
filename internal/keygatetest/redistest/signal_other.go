//go:build !unix

package redistest

import "os"

//nolint:gochecknoglobals // os.Kill is a variable
var terminate = os.Kill

type signal int

const stop, cont signal = 0, 1

func (s *Server) signal(signal) { s.t.Skip("the system cannot stop a process for a while") }
