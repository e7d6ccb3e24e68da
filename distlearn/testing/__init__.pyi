from distlearn.testing.checks import GradientError as GradientError
from distlearn.testing.checks import assert_same_params as assert_same_params
from distlearn.testing.checks import check_layer as check_layer
from distlearn.testing.checks import check_strategy as check_strategy
from distlearn.testing.checks import gradient_check as gradient_check
from distlearn.testing.checks import numeric_gradient as numeric_gradient
