package jobs

import (
	"fmt"
	"regexp"
	"strings"

	"berth/schema/queue"
)

// waitOption is the option --wait of sbatch(1), also as -W in a group of options without a value.
var waitOption = regexp.MustCompile(`^["']?(--wait|-[hHIkOQsvV]*W[^"']*)["']?$`)

// checkDirectives refuses a script whose #SBATCH lines make sbatch wait until the job has ended:
// it would keep one of the few calls that a control host serves at a time. sbatch reads these
// lines up to the first command.
func checkDirectives(script string) error {
	n := 0
	for line := range strings.Lines(script) {
		n++
		options, isDirective := strings.CutPrefix(line, "#SBATCH")
		if !isDirective {
			if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(line, "#") {
				return nil
			}
			continue
		}
		for _, option := range strings.Fields(options) {
			if strings.HasPrefix(option, "#") { // a comment
				break
			}
			if waitOption.MatchString(option) {
				return fmt.Errorf("%w: line %d of the script has %s, with which sbatch waits until the job has ended: remove it; the job's state says when it has ended", queue.ErrDenied, n, option)
			}
		}
	}
	return nil
}
