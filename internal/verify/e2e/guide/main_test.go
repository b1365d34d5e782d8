package guide

import (
	"testing"

	"github.com/lockstepmq/lockstep/internal/testkit/e2etest"
)

func TestMain(m *testing.M) { e2etest.Main(m) }
