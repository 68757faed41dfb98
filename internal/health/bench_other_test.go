//go:build !unix

package health

import "time"

// processorTime returns 0: this system does not tell.
func processorTime() time.Duration { return 0 }
