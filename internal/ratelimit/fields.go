package ratelimit

import "strconv"

// AppendPolicy appends the value of the field RateLimit-Policy, one item for each
// standing but those of the default limit: "key";q=100;w=60, "route";q=50;w=1.
// It appends nothing if there is none.
func AppendPolicy(dst []byte, standings []Standing) []byte {
	start := len(dst)
	for i := range standings {
		if s := &standings[i]; !s.Default {
			dst = appendItem(dst, start, s.Scope, ";q=", s.Limit, ";w=", s.Window)
		}
	}
	return dst
}

// AppendLimits appends the value of the field RateLimit in the same way:
// "key";r=99;t=1, "route";r=49;t=1.
func AppendLimits(dst []byte, standings []Standing) []byte {
	start := len(dst)
	for i := range standings {
		if s := &standings[i]; !s.Default {
			dst = appendItem(dst, start, s.Scope, ";r=", s.Remaining, ";t=", s.ResetIn)
		}
	}
	return dst
}

func appendItem(dst []byte, start int, scope Scope, name1 string, v1 int64, name2 string, v2 int64) []byte {
	if len(dst) > start {
		dst = append(dst, ", "...)
	}
	dst = append(dst, '"')
	dst = append(dst, scope.String()...)
	dst = append(dst, '"')
	dst = append(dst, name1...)
	dst = strconv.AppendInt(dst, v1, 10)
	dst = append(dst, name2...)
	return strconv.AppendInt(dst, v2, 10)
}
