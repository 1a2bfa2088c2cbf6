package main

import (
	"errors"
	"strconv"
	"strings"
)

// slurmTime is a flag with a time limit in minutes, in the forms of sbatch(1), --time: minutes,
// minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes and
// days-hours:minutes:seconds. Seconds are rounded up to a minute.
type slurmTime struct{ minutes *int }

// Type implements pflag.Value.
func (t *slurmTime) Type() string { return "time" }

// String implements pflag.Value.
func (t *slurmTime) String() string {
	if t.minutes == nil || *t.minutes == 0 {
		return ""
	}
	return strconv.Itoa(*t.minutes)
}

// Set implements pflag.Value.
func (t *slurmTime) Set(text string) error {
	errForm := errors.New("want minutes, hours:minutes:seconds or days-hours, such as 90, 1:30:00 or 2-0")
	days, rest, hasDays := strings.Cut(text, "-")
	if !hasDays {
		days, rest = "0", text
	}
	fields := strings.Split(rest, ":")
	seconds := []int{60, 1} // of a field, in the form minutes:seconds
	if hasDays || len(fields) == 3 {
		seconds = []int{3600, 60, 1}
	}
	if len(fields) > len(seconds) {
		return errForm
	}
	total := 0
	for i, field := range append([]string{days}, fields...) {
		n, err := strconv.ParseUint(field, 10, 31)
		if err != nil {
			return errForm
		}
		unit := 24 * 3600
		if i > 0 {
			unit = seconds[i-1]
		}
		total += int(n) * unit
	}
	*t.minutes = (total + 59) / 60
	return nil
}

// slurmMemory is a flag with an amount of memory in MiB, in the forms of sbatch(1), --mem.
type slurmMemory struct{ mib *int }

// Type implements pflag.Value.
func (m *slurmMemory) Type() string { return "memory" }

// String implements pflag.Value.
func (m *slurmMemory) String() string {
	if m.mib == nil || *m.mib == 0 {
		return ""
	}
	return strconv.Itoa(*m.mib)
}

// Set implements pflag.Value.
func (m *slurmMemory) Set(text string) error {
	number, unit := text, 1
	for letter, factor := range map[string]int{"M": 1, "G": 1 << 10, "T": 1 << 20} {
		if n, ok := strings.CutSuffix(strings.TrimSuffix(strings.ToUpper(text), "B"), letter); ok {
			number, unit = n, factor
		}
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return errors.New("want MiB, or a number with the unit M, G or T, such as 16G")
	}
	*m.mib = int(n) * unit
	return nil
}
