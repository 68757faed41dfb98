package trace

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// sampler chooses the requests that are told of.
type sampler struct {
	parent bool   // what the caller chose holds, if there is a caller
	bound  uint64 // a trace is chosen if the upper 63 of the last 64 bits of its identifier are below, as elsewhere
}

const always = 1 << 63

// samplerOf returns the sampler with a name of OpenTelemetry. "" is
// parentbased_always_on.
func samplerOf(name, arg string) (s sampler, err error) {
	rest, parent := strings.CutPrefix(name, "parentbased_")
	if name == "" {
		rest, parent = "always_on", true
	}
	s.parent = parent
	switch rest {
	case "always_on":
		s.bound = always
	case "always_off":
	case "traceidratio":
		ratio := 1.0
		if arg != "" {
			if ratio, err = strconv.ParseFloat(arg, 64); err != nil || math.IsNaN(ratio) || ratio < 0 || ratio > 1 {
				return s, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: %q is no number from 0 to 1", arg)
			}
		}
		s.bound = uint64(ratio * always)
	default:
		return s, fmt.Errorf("OTEL_TRACES_SAMPLER: %q is not known: give always_on, always_off or traceidratio, each also with parentbased_ before it", name)
	}
	return s, nil
}

// choose reports whether a trace is told of. inbound tells that there is a
// caller, which chose sampled.
func (s sampler) choose(trace [16]byte, inbound, sampled bool) bool {
	if s.parent && inbound {
		return sampled
	}
	return binary.BigEndian.Uint64(trace[8:])>>1 < s.bound
}
