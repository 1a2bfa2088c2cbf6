//go:build long

package policy

import (
	"testing"

	"berth/examples/explore"
)

func TestLongLayersOnlyNarrow(t *testing.T) {
	layersOnlyNarrow(t, explore.Seed(t), explore.Count(20_000, 1_000_000))
}

func TestLongJudgeMatchesEvaluate(t *testing.T) {
	judgeMatchesEvaluate(t, explore.Seed(t), uint64(explore.Count(10, 100)))
}

func TestLongExplanationMatchesEvaluation(t *testing.T) {
	explanationMatchesEvaluation(t, explore.Seed(t), explore.Count(300, 3000))
}
