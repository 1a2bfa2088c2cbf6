package api

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// answer is the body of a successful answer.
type answer struct {
	mediaType string
	body      []byte
	status    int  // 0: 200
	truncated bool // body is the end of something longer
	// stream writes a body that has no end yet, instead. It returns a failure before its first byte only.
	stream func(http.ResponseWriter) *failure
}

// head sets the headers of every answer.
func head(h http.Header, correlation string) {
	h.Set("X-Correlation-ID", correlation)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Vary", "Authorization")
}

// asJSON is a value as JSON.
func asJSON(status int, value any) (answer, *failure) {
	text, err := json.Marshal(value)
	if err != nil {
		return answer{}, &failure{code: codeInternal, message: "internal error: give Berth's operators the correlation id", cause: err}
	}
	return answer{mediaType: "application/json", body: append(text, '\n'), status: status}, nil
}

// age is the part of an answer that changes while what it shows stays the same.
var age = regexp.MustCompile(`"age_seconds":\d+`)

// matches says whether an If-None-Match header names etag.
func matches(header, etag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
		if one == "*" || one == etag {
			return true
		}
	}
	return false
}

// accepts says whether an Accept header takes a media type; without one, all
// are taken.
func accepts(header []string, mediaType string) bool {
	if len(header) == 0 {
		return true
	}
	family, _, _ := strings.Cut(mediaType, "/")
	for one := range strings.SplitSeq(strings.Join(header, ","), ",") {
		kind, params, _ := strings.Cut(one, ";")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "*/*", family + "/*", mediaType:
			if q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q="); ok {
				if v, err := strconv.ParseFloat(q, 64); err == nil && v == 0 {
					continue
				}
			}
			return true
		}
	}
	return false
}
