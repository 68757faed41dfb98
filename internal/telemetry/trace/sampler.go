package trace

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// sampler decides which traces to export.
type sampler struct {
	parent bool   // keep the decision of the client's traceparent, if there is one
	bound  uint64 // sample a trace if the upper 63 of the last 64 bits of its ID are below this, as in the SDKs
}

const always = 1 << 63

// samplerOf returns the sampler with the given name in OpenTelemetry. "" means
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
				return s, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: %q must be a number between 0 and 1", arg)
			}
		}
		s.bound = uint64(ratio * always)
	default:
		return s, fmt.Errorf("OTEL_TRACES_SAMPLER: %q is not supported: set always_on, always_off or traceidratio, or one of them after parentbased_", name)
	}
	return s, nil
}

// sampled reports whether to export the trace. hasParent says that the client sent a traceparent,
// and parentSampled is the decision in it.
func (s sampler) sampled(trace [16]byte, hasParent, parentSampled bool) bool {
	if s.parent && hasParent {
		return parentSampled
	}
	return binary.BigEndian.Uint64(trace[8:])>>1 < s.bound
}
