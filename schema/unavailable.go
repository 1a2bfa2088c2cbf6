package schema

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// MaxUnavailable limits how many members of a role a change may take out of service at once:
// a number, or a percentage of the role's count. The zero value is the default, 1.
type MaxUnavailable struct {
	Number  int
	Percent int
}

// Of returns the limit for a role with that many members: at least 1, as no change would
// end otherwise. A percentage is rounded down, as in Kubernetes.
func (m MaxUnavailable) Of(count int) int {
	if m.Percent > 0 {
		return max(1, count*m.Percent/100)
	}
	return max(1, m.Number)
}

// String returns the limit in the form of a document.
func (m MaxUnavailable) String() string {
	if m.Percent > 0 {
		return fmt.Sprintf("%d%%", m.Percent)
	}
	return strconv.Itoa(max(1, m.Number))
}

// MarshalJSON writes a number, or a percentage as a string.
func (m MaxUnavailable) MarshalJSON() ([]byte, error) {
	if m.Percent > 0 {
		return json.Marshal(m.String())
	}
	return json.Marshal(m.Number)
}

// UnmarshalJSON reads a number, or a percentage such as "25%".
func (m *MaxUnavailable) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		*m = MaxUnavailable{}
		return json.Unmarshal(raw, &m.Number)
	}
	percent, ok := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(percent)
	if !ok || err != nil || n < 1 || n > 100 {
		return fmt.Errorf("%q is not a percentage from 1%% to 100%%", text)
	}
	*m = MaxUnavailable{Percent: n}
	return nil
}
