from polycast.routing.runs_in_python import Topic as Topic
from polycast.routing.runs_in_python import group as group
from polycast.routing.runs_in_python import number as number
