package object

import (
	"fmt"
	"strings"

	"berth/schema"
)

// Names of the trailers in every commit on berth/status and berth/in-force.
const (
	TrailerConfig      = "Config-Commit"
	TrailerCorrelation = "Correlation-Id"
	TrailerEpoch       = "Epoch"
)

// MaxLine bounds a line of text in a commit message or a README, in bytes.
const MaxLine = 300

// Trailers returns the last paragraph of a commit message.
func Trailers(config string, correlation []string, epoch uint64) string {
	var b strings.Builder
	if config != "" {
		fmt.Fprintf(&b, "%s: %s\n", TrailerConfig, OneLine(config, MaxLine))
	}
	for _, id := range correlation {
		fmt.Fprintf(&b, "%s: %s\n", TrailerCorrelation, OneLine(id, MaxLine))
	}
	fmt.Fprintf(&b, "%s: %d", TrailerEpoch, epoch)
	return b.String()
}

// HeldLine returns a held document as one line of text.
func HeldLine(h schema.Held) string {
	return OneLine(fmt.Sprintf("%s (%s): %s", h.File, h.Reason, h.Message), MaxLine)
}
