package gitrepo_test

import (
	"fmt"
)

func numbers(format string, from, to int) (out []string) {
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}
